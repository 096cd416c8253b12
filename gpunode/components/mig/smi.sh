# Prints MIG's modes, of what gpunode/system/smi.sh asked; where MIG mode is on somewhere, instances and the GPUs' own
# lists; where a GPU has MIG, who has GPUs or instances open: holder=PID USER DEVICE CGROUP PROGRAM, divided by tabs,
# minor=UUID NUMBER of a GPU's device, and capability=FILE NUMBER of an instance's. Takes LISTS: lines KEY ARGUMENT...
# of what nvidia-smi is asked for then.
#
# The lists are asked for one after the other: they must tell of one state. Each call has a limit of 15 seconds; after
# one that hung, none is made. Where a GPU is lost, it is told which. $smi and $library are gpunode/system/smi.sh's.

# shellcheck disable=SC2154

printf '%s\n' "$SMI"
listed() {
  key=$1; shift
  printed=$(LD_PRELOAD=$library timeout -k 2 15 "$smi" "$@"); status=$?
  printf '%s.rc=%s\n' "$key" "$status"
  printed "$key" "$printed"
  [ "$status" -ne 124 ] && [ "$status" -ne 137 ]
}
held() {
  holders=$(find /proc/[0-9]*/fd -maxdepth 1 \( -lname '/dev/nvidia[0-9]*' -o -lname '/dev/nvidia-caps/nvidia-cap*' \) \
    -printf '%h\t%u\t%l\n')
  [ -n "$holders" ] || return 0
  minors
  for file in /proc/driver/nvidia/capabilities/gpu*/mig/gi*/access \
    /proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*/access; do
    [ ! -r "$file" ] || while read -r key number; do
      [ "$key" != DeviceFileMinor: ] || printf 'capability=%s\t%s\n' "$file" "$number"
    done < "$file"
  done
  set -f; IFS=$NL
  for line in $holders; do
    folder=${line%%/fd*}; group=; program=
    [ -r "$folder/comm" ] || continue
    read -r program < "$folder/comm" || continue
    # It is gone before a run begins: a monitor, or another reading.
    [ "$program" != nvidia-smi ] || continue
    while IFS=: read -r number names path; do
      case "$number:$names" in 0:*|*:name=systemd) group=$path;; esac
    done < "$folder/cgroup"
    printf 'holder=%s\t%s\t%s\t%s\n' "${folder##*/}" "${line#*/fd?}" "$group" "$program"
  done
  set +f; unset IFS
}
case "$NL$SMI" in
  *"${NL}gpu.rc=0"*|*"${NL}gpu.rc=14"*)
    # The mode now, and behind it the one after a reset; other columns say Enabled, too.
    case "$SMI" in *', Enabled, Enabled, '*|*', Enabled, Disabled, '*)
      rest=$LISTS$NL
      while [ -n "$rest" ]; do
        list=${rest%%"$NL"*}; rest=${rest#*"$NL"}
        # shellcheck disable=SC2086  # A list is a key and arguments.
        listed $list || break
      done;;
    esac
    case "$SMI" in *', Enabled, '*|*', Disabled, '*) held;; esac;;
  # One lost GPU costs the answer of all: each is asked by itself.
  *"${NL}gpu.rc=15"*)
    for gpu in /proc/driver/nvidia/gpus/*; do
      LD_PRELOAD=$library timeout -k 2 15 "$smi" -i "${gpu##*/}" --query-gpu=index --format=csv,noheader > /dev/null
      # 14: its infoROM is corrupted, and it answers.
      case $? in 0|14) ;; *) echo "lost=${gpu##*/}";; esac
    done;;
esac
