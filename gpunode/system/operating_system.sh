# Prints the lines of /etc/os-release that tell the system as os.KEY=VALUE, architecture=, kernel=, tegra=yes on such a
# board, booted=no within a root directory that no systemd has booted (a chroot, an image that is made), user=NUMBER
# where it is not root who asks, and driver_branch=NUMBER where there is pacman: of the driver that is installed, else
# of the one in its lists. A rolling release has one branch, and moves to the next one by itself.

while IFS= read -r line || [ -n "$line" ]; do
  case "$line" in ID=*|VERSION_ID=*|VERSION_CODENAME=*|ID_LIKE=*|PRETTY_NAME=*) printf 'os.%s\n' "$line";; esac
done < /etc/os-release
said=$(uname -mr)
echo "architecture=${said#* }"
echo "kernel=${said% *}"
tree=/proc/device-tree/compatible
if [ -e /etc/nv_tegra_release ] || { [ -e "$tree" ] && grep -qs tegra "$tree"; }; then echo tegra=yes; fi
# The build machine's /run may be mounted there; its first process has another root, as far as that may be seen.
if [ ! -d /run/systemd/system ] || { [ -e /proc/1/root/ ] && [ ! /proc/1/root/ -ef / ]; }; then echo booted=no; fi
while read -r key user _; do case "$key" in Uid:) break;; esac; done < /proc/self/status
[ "$user" = 0 ] || echo "user=$user"
if [ -d /var/lib/pacman/local ]; then
  version=
  for folder in /var/lib/pacman/local/nvidia-utils-[0-9]*; do
    [ ! -d "$folder" ] || version=${folder##*/nvidia-utils-}
  done
  [ -n "$version" ] || version=$(timeout -k 2 10 pacman -Si nvidia-utils | sed -n 's/^Version *: *//p')
  version=${version##*:}; echo "driver_branch=${version%%.*}"
fi
