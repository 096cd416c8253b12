# Prints what a Slurm node is: gpunode's files, slurmd and its unit, which of the site's files include gpunode's, the
# GPUs with their minors and near CPUs, the devices of MIG instances, and what slurmctld says of the node. Takes FOLDER,
# FILES of gpunode's, GRES among them; asks for the units slurmd.service and slurmctld.service.
#
# `slurmd -G` is not asked: it sets up cgroups. What it would say of files is asked when they are to change.

# shellcheck disable=SC2153  # set by whoever sends it

written=
for file in $FILES; do
  [ -f "$file" ] || continue
  echo "file=$file $(file_base64 "$file")"
  # By ctime: any mtime can be set.
  written=$written$(stat -c %.6Z "$file")$NL
done
command -v slurmd > /dev/null || exit 0
printed version "$(timeout -k 2 10 slurmd -V)"
hardware=$(timeout -k 2 10 slurmd -C); hardware=${hardware%%"$NL"*}
printf 'hardware=%s\n' "$hardware"
[ ! -f "$FOLDER/slurm.conf" ] || printed types "$(grep -i '^[[:space:]]*GresTypes[[:space:]]*=' "$FOLDER/slurm.conf")"
[ ! -d "$FOLDER" ] || printed include "$(grep -rHiE '^[[:space:]]*include[[:space:]]' "$FOLDER" --include='*.conf')"
[ ! -f "$FOLDER/slurm.conf" ] || echo "configured=yes"
for plugin in /usr/lib/*/slurm*/gpu_nvml.so /usr/lib*/slurm*/gpu_nvml.so /opt/slurm/lib*/slurm/gpu_nvml.so; do
  [ ! -e "$plugin" ] || { echo "nvml=yes"; break; }
done

for service in slurmd slurmctld; do
  unit "$service.service" || continue
  says LoadState; [ "$SAID" = loaded ] || continue
  says ActiveState; active=$SAID
  says UnitFileState; enabled=$SAID
  started=; [ "$active" != active ] || { says ActiveEnterTimestamp; started=$SAID; }
  printf 'unit=%s\t%s\t%s\t%s\n' "$service" "$active" "$enabled" "$started"
done
printed written "$written"

for gpu in /proc/driver/nvidia/gpus/*; do
  [ -r "$gpu/information" ] || continue
  minor=; name=; near=; address=${gpu##*/}
  while IFS= read -r line; do
    words "${line#*:}"
    case "$line" in 'Device Minor:'*) minor=$WORDS;; Model:*) name=$WORDS;; esac
  done < "$gpu/information"
  pci=/sys/bus/pci/devices/$address
  if [ -r "$pci/local_cpulist" ]; then read -r near < "$pci/local_cpulist"
  elif [ -r "$pci/numa_node" ]; then
    read -r number < "$pci/numa_node"
    [ ! -r "/sys/devices/system/node/node$number/cpulist" ] ||
      read -r near < "/sys/devices/system/node/node$number/cpulist"
  fi
  printf 'gpu=%s\t%s\t%s\t%s\n' "$address" "$minor" "$near" "$name"
done
folder=/proc/driver/nvidia/capabilities
for access in "$folder"/gpu*/mig/gi*/access "$folder"/gpu*/mig/gi*/ci*/access; do
  [ -r "$access" ] || continue
  place=${access#"$folder"/}; place=${place%/access}
  while read -r key number; do
    case "$key" in DeviceFileMinor:) echo "capability=$place $number";; esac
  done < "$access"
done
printed cpu "$(lscpu -p=CPU,CORE,SOCKET,NODE | grep -v '^#')"

# A step's process has its number as its title; `slurmstepd infinity` holds a cgroup, and is none.
echo "steps=$(pgrep -cf '^slurmstepd: \[')"
name=${hardware#NodeName=}; name=${name%% *}
# Its name may be another one than the host's: then the file has it.
[ ! -r "$GRES" ] || while IFS= read -r line; do
  case "$line" in NodeName=*) name=${line#NodeName=}; name=${name%% *};; esac
done < "$GRES"
if [ -f "$FOLDER/slurm.conf" ] && command -v scontrol > /dev/null; then
  node=$(timeout -k 2 10 scontrol -o show node "$name")
  # The first of its lines is the node; a reason may hold any text.
  printf 'node=%s\n' "${node%%"$NL"*}"
fi
