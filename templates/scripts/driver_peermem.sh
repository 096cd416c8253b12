# Loads nvidia_peermem, and says what modprobe's words mean where it does not. Takes and prints nothing else.

said=$(modprobe nvidia_peermem 2>&1) && exit 0
printf '%s\n' "$said" >&2
case "$said" in
  *'Invalid argument'*)
    why="it was built where ib_core had no interface for peers' memory, or another one"
    way="install MOFED or DOCA-OFED first, build the driver's modules again (\`dkms autoinstall --force\`, or
install the driver again), and run again";;
  *'Unknown symbol'*)
    why="it was built with another ib_core or another nvidia than those that are loaded"
    way="build the driver's modules again (\`dkms autoinstall --force\`), or boot the node; run again";;
  *'not found'*)
    why="the driver that is installed has no such module"
    way="set a newer driver.version, or another driver.source";;
  *) why=$said; way="see dmesg on the node, correct what it names, and run again";;
esac
echo "gpunode: nvidia_peermem does not load: $why" | tr '\n' ' ' >&2; echo >&2
echo "gpunode: remedy: $way; or leave driver.peermem out: open modules also serve RDMA by dma-buf, which needs none" \
  "of" \
  "it" | tr '\n' ' ' >&2; echo >&2
exit 1
