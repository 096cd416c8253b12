# Prints every place where a driver's version shows, and whether nvidia_uvm is loaded and has its device. Takes RECORD,
# what gpunode booted the node for, and PREFERENCES, LOCKLIST and VERSIONLOCK, by which apt and the dnfs keep packages
# still; asks for the node's packages (facts/packages.py) and the units of SERVICES (gpunode/system/unit.sh). Below
# $DRIVER_ROOT stand nvidia-smi and libraries alone: the module is in memory when whoever made that folder has loaded
# it.

set -f; IFS=$NL
for line in $PACKAGES; do
  package=${line#* }
  # What keeps the container toolkit still is the toolkit's own.
  case "$MANAGER $package" in
    'apt '*) ;;
    *' nvidia-container-'*|*' libnvidia-container'*|*' nvidia-docker'*) continue;;
  esac
  # Nor are container runtimes the driver's.
  case "$package" in containerd*|docker*|runc\ *) continue;; esac
  echo "package=$package"
  case "$line" in hold\ *) echo "held=${package%% *}";; esac
done
unset IFS; set +f
# What keeps the driver's packages as they are names those, too, that somebody has taken away since.
case "$MANAGER" in
  apt) pins=preference; file=$PREFERENCES;;
  dnf) pins=lock; file=$LOCKLIST;;
  dnf5) pins=versionlock; file=$VERSIONLOCK;;
  *) pins=; file=;;
esac
if [ -n "$pins" ] && [ -r "$file" ]; then
  while IFS= read -r line; do printf '%s=%s\n' "$pins" "$line"; done < "$file"
fi
if [ -f "$RECORD" ]; then attempt=; read -r attempt < "$RECORD"; echo "attempt=$attempt"; fi
# Debian's own packages name the module nvidia-current or nvidia-current-open; the first that is there counts.
there=; on_disk=
set -f; IFS=$NL
for line in $([ -n "$DRIVER_ROOT" ] || modinfo nvidia nvidia-current nvidia-current-open); do
  case "$line" in
    filename:*) [ -z "$there" ] || break; there=${line##* };;
    version:*) on_disk=${line##* }; printf 'modinfo=%s\n' "$line";;
    license:*) printf 'modinfo=%s\n' "$line";;
  esac
done
unset IFS; set +f
if [ -r /sys/module/nvidia/version ]; then
  read -r version < /sys/module/nvidia/version; echo "loaded=$version"
  # A package's file has the date of its build; its inode's time is when it came.
  [ -z "$on_disk" ] || [ "$on_disk" = "$version" ] || echo "changed=$(stat -c %Z "$there")"
fi
if [ -d /sys/module/nvidia_uvm ]; then
  echo uvm=loaded
  [ -c /dev/nvidia-uvm ] || echo uvm_device=missing
fi
for module in nv_peer_mem nvidia_peermem; do [ ! -d "/sys/module/$module" ] || echo "peermem=$module"; done
# Built in, it shows by its class.
[ ! -d /sys/module/ib_core ] && [ ! -d /sys/class/infiniband ] || echo rdma=loaded
if [ -r /proc/driver/nvidia/params ]; then
  while IFS= read -r line; do
    name=${line%%: *}
    case "$name" in "$line"|*[!A-Za-z0-9_]*) continue;; esac
    printf 'parameter=%s\n' "$name ${line#*: }"
  done < /proc/driver/nvidia/params
fi
if [ -r /proc/driver/nvidia/version ]; then
  IFS= read -r version < /proc/driver/nvidia/version; printf 'proc=%s\n' "$version"
fi
# The dynamic loader takes the first entry of its cache whose file is there, else what is in its own folders. Below a
# root of its own the container toolkit looks for the driver in these folders. A library without content loads nowhere.
cached=; at=$DRIVER_ROOT
if [ -n "$DRIVER_ROOT" ]; then
  set -- "$at"/usr/lib/*-linux-gnu "$at/usr/lib64" "$at/usr/lib" "$at/lib64" "$at"/lib/*-linux-gnu "$at"
else
  case "$MANAGER" in
    dnf*|zypper) set -- /lib64 /usr/lib64;;
    *) set -- /lib/x86_64-linux-gnu /lib/aarch64-linux-gnu /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu \
      /lib64 /usr/lib64 /lib /usr/lib;;
  esac
  cached=$(ldconfig -p) || echo loader=unknown
  cached=$(printf '%s\n' "$cached" | grep -E '^[[:space:]]*lib(cuda|nvidia-ml)\.so\.1 \(libc6,(x86-64|AArch64)')
fi
libraries=
for name in libnvidia-ml.so.1 libcuda.so.1; do
  first=
  set -f; IFS=$NL
  for line in $cached; do
    case "$line" in *"$name "*) [ ! -s "${line##*=> }" ] || { first=${line##*=> }; break; };; esac
  done
  unset IFS; set +f
  for folder in "$@"; do
    [ -z "$first" ] || break
    [ ! -s "$folder/$name" ] || first=$folder/$name
  done
  libraries=$libraries${first:+$first$NL}
done
set -- /etc/environment /etc/profile.d/*.sh
set -f; IFS=$NL
# shellcheck disable=SC2086  # A line is a word.
[ -z "$libraries" ] || for library in $(readlink -f $libraries); do echo "library=$library"; done
# What a login shell puts in front of both.
if [ -z "$DRIVER_ROOT" ]; then
  # shellcheck disable=SC2013  # $IFS is a line end.
  for line in $(grep -s '^[^#]*LD_LIBRARY_PATH=' /dev/null "$@"); do
    IFS=":=\"' ;\$"
    for folder in ${line#*LD_LIBRARY_PATH=}; do
      case "$folder" in /*) ;; *) continue;; esac
      for name in libnvidia-ml.so.1 libcuda.so.1; do
        [ ! -s "$folder/$name" ] || echo "session=${line%%:*} $(readlink -f "$folder/$name")"
      done
    done
    IFS=$NL
  done
fi
unset IFS; set +f
if [ -n "$DRIVER_ROOT" ]; then
  echo "root=$DRIVER_ROOT"
  [ ! -d "$DRIVER_ROOT" ] || echo root_folder=yes
  for folder in '' /usr/bin /usr/sbin /bin /sbin; do
    [ ! -x "$DRIVER_ROOT$folder/nvidia-smi" ] || { echo "root_smi=$DRIVER_ROOT$folder/nvidia-smi"; break; }
  done
  [ ! -e "$DRIVER_ROOT/dev/nvidiactl" ] || echo root_devices=yes
fi
# No package brings the uninstaller: only NVIDIA's own installer leaves it.
[ ! -f /usr/bin/nvidia-uninstall ] && [ ! -f /usr/bin/nvidia-installer ] || echo runfile=yes
for sources in /var/lib/dkms/nvidia/*/source; do
  sources=${sources%/source}; [ ! -e "$sources/source" ] || echo "dkms=${sources##*/}"
done
[ ! -e /var/lib/gpunode/transactions/driver/unproven ] || echo unproven=yes
# Loaded alone it owns no GPU.
for bound in /sys/bus/pci/drivers/nouveau/*:*; do
  [ ! -e "$bound" ] || { echo nouveau=yes; break; }
done
set --; gpus=
for device in /sys/bus/pci/devices/*; do
  [ -h "$device/driver" ] || continue
  read -r vendor < "$device/vendor"; read -r class < "$device/class"
  case "$vendor $class" in '0x10de 0x03'*) set -- "$@" "$device/driver"; gpus="$gpus${device##*/} ";; esac
done
[ "$#" -eq 0 ] || for owner in $(readlink "$@"); do
  case "$owner" in */nvidia|*/nouveau) ;; *) echo "blocker=${owner##*/} has the GPU ${gpus%% *}";; esac
  gpus=${gpus#* }
done
set --
for file in /etc/modprobe.d/*.conf /run/modprobe.d/*.conf /usr/lib/modprobe.d/*.conf /lib/modprobe.d/*.conf; do
  [ ! -e "$file" ] || set -- "$@" "$file"
done
# Where /lib is a link, a line shows twice. It is the pattern of templates/scripts/nouveau.sh.
[ "$#" -eq 0 ] ||
  grep -HnE '^\s*(alias\s+nvidia\s+off|install\s+nvidia\s+([^ ]*/)?(false|true|:))(\s|$)' "$@" |
  while IFS= read -r line; do echo "blocker=$line"; done
for service in $SERVICES; do
  [ -e "/lib/systemd/system/$service.service" ] || [ -e "/usr/lib/systemd/system/$service.service" ] || continue
  unit "$service.service"
  says ActiveState; active=$SAID
  [ "$active" != failed ] ||
    printed ended "$service $(timeout -k 2 10 journalctl -q -u "$service" -n 5 -o cat | paste -s -d '|' -)"
  says UnitFileState; echo "service=$service $active $SAID"
done
