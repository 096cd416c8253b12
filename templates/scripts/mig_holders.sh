# Functions, on top of mig_asking.sh: which processes hold a GPU or one of its instances, and how they let go of it.

# shellcheck disable=SC2154  # set by whoever sends it

minor_of() {
  information=$(grep -lF "$uuid" "$proc"/driver/nvidia/gpus/*/information 2>/dev/null | head -n 1)
  minor=''; [ -z "$information" ] || minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$information")
  printf '%s' "${minor:-$gpu}"
}
having_open() { find "$proc"/[0-9]*/fd -maxdepth 1 -lname "$1" 2>/dev/null | awk -F/ '{print $(NF - 2)}'; }
# holders [GI]: print the processes that have the GPU open, or one of its GPU instances with what is within, as the
# kernel says: for each the driver names a device, which its users open besides the GPU's own
# shellcheck disable=SC2013
holders() {
  if [ -n "${1:-}" ]; then
    of="$proc/driver/nvidia/capabilities/gpu$(minor_of)/mig/gi$1"
    for device in $(sed -n 's/^DeviceFileMinor:[[:space:]]*//p' "$of"/access "$of"/ci*/access 2>/dev/null); do
      having_open "/dev/nvidia-caps/nvidia-cap$device"
    done
  else
    having_open "/dev/nvidia$(minor_of)"
    smi -i "$gpu" --query-compute-apps=pid --format=csv,noheader | grep -x '[0-9][0-9]*'
  fi | sort -nu
}
groups_of() { awk -F: '$1 == 0 || $2 == "name=systemd" {print $3}' "$proc/$1/cgroup" 2>/dev/null; }
unit_of() { groups_of "$1" | tr / '\n' | grep -E '\.(service|scope)$' | tail -n 1; }
# By the innermost group alone: a machine may itself be a container.
container_of() { groups_of "$1" | sed 's|.*/||' | grep -oE '[0-9a-f]{64}' | tail -n 1 | cut -c 1-12; }
described() {
  program=$(tr -cd 'A-Za-z0-9._-' < "$proc/$1/comm" 2>/dev/null) || true
  container=$(container_of "$1") || true
  unit=$(unit_of "$1") || true
  printf 'process %s (%s) of %s%s%s' "$1" "${program:-gone}" "$(stat -c %U "$proc/$1" 2>/dev/null || echo nobody)" \
    "${container:+, container $container}" "${unit:+, unit $unit}"
}
# release [GI]: stop the listed units that hold the GPU; where anybody else does, tell of all of those
release() {
  others=''; to_stop=''
  for pid in $(holders "$@"); do
    unit=$(unit_of "$pid") || true
    case " $stop_units " in
      *" ${unit:-none} "*) case " $to_stop " in *" $unit "*) ;; *) to_stop="$to_stop $unit";; esac;;
      *) [ ! -e "$proc/$pid" ] || others="$others; $(described "$pid")";;
    esac
  done
  [ -z "$others" ] || { fails "GPU $gpu is in use by ${others#; }"; return 1; }
  for unit in $to_stop; do stop_unit "$unit" || return 1; done
  [ -n "$to_stop" ] || return 0
  tries=0
  while [ -n "$(holders "$@")" ]; do
    tries=$((tries + 1)); sleep 0.5
    [ "$tries" -lt 20 ] || { fails "GPU $gpu is still in use after $to_stop was stopped"; return 1; }
  done
}
# What a unit takes along when it stops comes back, too. It is noted first: a loss of power does not lose it.
stop_unit() {
  for each in "$1" $(systemctl show -p RequiredBy -p BoundBy -p ConsistsOf --value "$1"); do
    case "$each" in *.service|*.socket) ;; *) continue;; esac
    systemctl is-active --quiet "$each" || continue
    grep -qx "$each" "$checkpoint/stopped" 2>/dev/null || echo "$each" >> "$checkpoint/stopped"
  done
  sync "$checkpoint/stopped"
  echo "gpunode: stopping $1, which holds GPU $gpu" >&2
  systemctl stop "$1" </dev/null || { fails "$1 holds GPU $gpu and does not stop"; return 1; }
}
# shellcheck disable=SC2013
start_stopped() {
  [ -e "$checkpoint/stopped" ] || return 0
  left=''
  for unit in $(cat "$checkpoint/stopped"); do
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl start "$unit" </dev/null || left="$left $unit"
  done
  [ -z "$left" ] || { fails "stopped, and does not start again:$left"; return 1; }
}
