# Functions for initial file systems: the programs that list and make them. It prints nothing.
#
# initramfs_of RELEASE prints the path of a kernel's, list_initramfs FILE what is in it, make_initramfs RELEASE makes
# it. mkinitcpio goes by its presets, which are named after the kernel's package; dracut writes into the file that is
# there, which may have a second name. A list counts only as a whole: an image that is cut off fails. lsinitrd, a script
# of bash's, sorts its list: pipefail keeps that from hiding a cpio that fails.

initramfs_of() {
  for image in "/boot/initrd.img-$1" "/boot/initramfs-$1.img" "/boot/initrd-$1"; do
    [ ! -e "$image" ] || { printf '%s' "$image"; return 0; }
  done
  package=
  { [ -r "/usr/lib/modules/$1/pkgbase" ] && read -r package < "/usr/lib/modules/$1/pkgbase"; } || [ -n "$package" ] ||
    return 1
  [ -e "/boot/initramfs-$package.img" ] && printf '%s' "/boot/initramfs-$package.img"
}
list_initramfs() {
  if command -v lsinitramfs > /dev/null; then timeout -k 2 20 lsinitramfs "$1"
  elif command -v lsinitcpio > /dev/null; then timeout -k 2 20 lsinitcpio "$1"
  elif command -v lsinitrd > /dev/null; then timeout -k 2 60 bash -o pipefail "$(command -v lsinitrd)" "$1"
  else return 127; fi
}
make_initramfs() {
  if command -v update-initramfs > /dev/null; then update-initramfs -u -k "$1"
  elif command -v mkinitcpio > /dev/null; then mkinitcpio -p "$(cat "/usr/lib/modules/$1/pkgbase")"
  elif command -v dracut > /dev/null; then
    image=$(initramfs_of "$1")
    # shellcheck disable=SC2015  # The last is for either of the two before it.
    dracut --quiet --force "$image.gpunode-new" "$1" && mv -f "$image.gpunode-new" "$image" ||
      { rm -f "$image.gpunode-new"; return 1; }
  else echo "gpunode: nothing is known here that makes initial file systems" >&2; return 127; fi
}
