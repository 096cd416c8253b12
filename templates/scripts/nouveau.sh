# Functions. nouveau_bound says whether nouveau has a GPU. Loaded without one it is in nobody's way.
# name_other_drivers prints each NVIDIA GPU that a driver other than NVIDIA's has, and what to do; it fails for none.

nouveau_bound() { [ -n "$(find /sys/bus/pci/drivers/nouveau -maxdepth 1 -name '*:*' 2>/dev/null)" ]; }
name_other_drivers() {
  named=''
  for device in /sys/bus/pci/devices/*; do
    case "$(cat "$device/vendor" "$device/class" 2>/dev/null | tr '\n' ' ')" in '0x10de 0x03'*) ;; *) continue;; esac
    owner=$(readlink "$device/driver") || continue
    owner=${owner##*/}
    case "$owner" in
      nvidia|'') continue;;
      vfio*|pci-stub) way="a virtual machine is to have it: leave this GPU to it, or take its ID out of vfio's options
(\`grep -rs vfio /etc/modprobe.d /proc/cmdline\` on the node), and boot the node";;
      *) way="boot the node with $owner blacklisted (/etc/modprobe.d), and run again";;
    esac
    named=yes
    echo "gpunode: the driver $owner has the GPU ${device##*/}, so that nvidia cannot use it" >&2
    echo "gpunode: remedy: $way" | tr '\n' ' ' >&2; echo >&2
  done
  [ -n "$named" ]
}
