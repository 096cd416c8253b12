# Functions. nouveau_bound says whether nouveau has a GPU. Loaded without one it is in nobody's way.
# name_other_drivers prints each NVIDIA GPU that a driver other than NVIDIA's has, and what to do; it fails for none.
# name_load_blocker prints what on the node keeps any version of the module from loading, and what to do: a line of
# modprobe's configuration, the kernel's command line, memory or the other driver; it fails where it finds nothing.
# Takes what modprobe printed.

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
      *) module=$(readlink "$device/driver/module") || module=$owner
        way="boot the node with ${module##*/} blacklisted (/etc/modprobe.d), and run again";;
    esac
    named=yes
    echo "gpunode: the driver $owner has the GPU ${device##*/}, so that nvidia cannot use it" >&2
    echo "gpunode: remedy: $way" | tr '\n' ' ' >&2; echo >&2
  done
  [ -n "$named" ]
}
name_load_blocker() {
  line=$(grep -HsnE '^\s*(alias\s+nvidia\s+off|install\s+nvidia\s+([^ ]*/)?(false|true|:))(\s|$)' \
    /etc/modprobe.d/*.conf /run/modprobe.d/*.conf /usr/local/lib/modprobe.d/*.conf /usr/lib/modprobe.d/*.conf \
    /lib/modprobe.d/*.conf | head -n 1) || :
  if [ -n "$line" ]; then
    at=${line#*:}; at=${line%%:*}:${at%%:*}
    echo "gpunode: cause: $at keeps the module nvidia from loading: ${line#"$at":}" >&2
    echo "gpunode: remedy: remove that line ($at), and run again; the driver that is installed stays" >&2
    return 0
  fi
  word=$(tr ' ' '\n' 2>/dev/null < /proc/cmdline | grep -E '^module_blacklist=(.*,)?nvidia(,|$)') || :
  if [ -n "$word" ]; then
    echo "gpunode: cause: the kernel was booted with $word, which keeps the module nvidia from loading" >&2
    echo "gpunode: remedy: take nvidia out of it in the boot loader's configuration, and boot the node" >&2
    return 0
  fi
  case "$1" in *'Cannot allocate memory'*|*'Too many open files'*|*'No space left on device'*)
    echo "gpunode: cause: the node has no room to load the module: $1" >&2
    echo "gpunode: remedy: see \`free -m\` and \`df\` on the node, make room, and run again" >&2
    return 0;;
  esac
  name_other_drivers
}
