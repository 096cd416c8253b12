# Loads nvidia_peermem, and says what modprobe's words mean where it does not. Takes and prints nothing else.

said=$(modprobe nvidia_peermem 2>&1) && exit 0
printf '%s\n' "$said" >&2
case "$said" in
  *'Invalid argument'*)
    why="it was built where ib_core had no interface for peers' memory, or another one: install MOFED or DOCA-OFED first
gpunode: and build the driver's modules anew (\`dkms autoinstall --force\`, or install the driver again)";;
  *'Unknown symbol'*)
    why="it was built with another ib_core or another nvidia than those that are loaded: build the driver's modules
gpunode: anew, or boot the node";;
  *'not found'*) why="the driver that is installed has no such module: take a newer one, or another source";;
  *) why="see dmesg";;
esac
echo "gpunode: nvidia_peermem does not load: $why" >&2
echo "gpunode: without it leave driver.peermem out; open modules also serve RDMA by dma-buf, which needs none of it" >&2
exit 1
