# The transaction of initial file systems: those of $releases are made anew, with $blacklist in them. On top of the
# functions of gpunode/system/initramfs.sh.
# A second name keeps the old image, and takes no room in /boot, where there may be little; an EFI partition knows no
# second names. It goes only once the new image was read to its end and holds what it was made for.

# shellcheck disable=SC2154  # set by whoever sends it

image_of() {
  initramfs_of "$1" || {
    echo "gpunode: kernel $1 has no initial file system in /boot" >&2
    echo "gpunode: remedy: make it (\`update-initramfs -c -k $1\`, dracut or mkinitcpio), or remove that kernel; run" \
      "again" >&2
    return 1; }
}

save() {
  for release in $releases; do
    image=$(image_of "$release")
    rm -f "$image.gpunode-old"
    ln "$image" "$image.gpunode-old" 2>/dev/null || cp -p "$image" "$image.gpunode-old" || {
      rm -f "$image.gpunode-old"; echo "gpunode: there is no room in /boot to keep the old $image; nothing changed" >&2
      echo "gpunode: remedy: remove kernels that nobody boots (\`df -h /boot\` on the node), and run again" >&2
      exit 1; }
  done
}

change() {
  for release in $releases; do
    make_initramfs "$release" || {
      echo "gpunode: the initial file system of kernel $release could not be made; the old one stays. The" \
        "room in /boot: $(df -h --output=avail /boot | tail -n 1 | tr -d ' ')" >&2
      exit 1; }
    image=$(image_of "$release")
    inside=$(list_initramfs "$image") || {
      echo "gpunode: the new initial file system of kernel $release cannot be read to its end; the old one stays" >&2
      exit 1; }
    printf '%s\n' "$inside" | grep -F "lib/modules/$release/" > /dev/null || {
      echo "gpunode: the new initial file system of kernel $release holds no module of it; the old one stays" >&2
      exit 1; }
    # It may leave nouveau out altogether (deploys/driver.py), and /etc/modprobe.d where it is made for any machine.
    # To its end: without a reader printf would complain.
    ! printf '%s\n' "$inside" | grep '/nouveau\.ko' > /dev/null ||
      printf '%s\n' "$inside" | grep -F "/$blacklist" > /dev/null ||
      reject "the new initial file system of kernel $release lacks $blacklist; look for a hook of the node's own that\
 leaves /etc/modprobe.d out"
    sync -f "$image"
  done
  for release in $releases; do rm -f "$(initramfs_of "$release").gpunode-old"; done
}

restore() {
  for release in $releases; do
    image=$(initramfs_of "$release") || image=/boot/initrd.img-$release
    old=$image.gpunode-old
    # Two names of one file still: there is nothing to put back, and mv would complain.
    if [ -e "$old" ] && ! [ "$old" -ef "$image" ]; then mv -f "$old" "$image" || return 1; fi
    rm -f "$old"
  done
  sync -f /boot
}
