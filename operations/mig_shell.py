"""Shell functions that bring GPUs to MIG layouts: for the transaction, its undoing, and the unit that runs at boot.

A layout is a line of text (gpunode/mig/record.py): a GPU's UUID, then `off`, or `on` and one word for each GPU
instance, PROFILE:START=SIZES, the sizes of its compute instances. The GPU's own lists say by which number a profile
goes; every instance is created at its own start, so that no order of creation can fail.
"""

from __future__ import annotations

from operations.mig_creating import CREATING

# What a call of theirs leaves: $why, the reason where it failed; $blame, where what was asked can never be had; $waits,
# where a mode waits for a reset or a boot. They need $stop_units, $reset (may a GPU be reset), $checkpoint and $proc.
_ASKING = r"""
fails() { why=$1; blame=${2:-}; return 1; }
# With 14 (a corrupted infoROM) it has answered; lines that begin with WARNING are no part of an answer.
smi() (
  code=0; said=$(timeout -k 5 "${patience:-60}" nvidia-smi "$@" 2>&1 </dev/null) || code=$?
  printf '%s\n' "$said" | sed '/^WARNING/d'
  [ "$code" -eq 14 ] || exit "$code"
)
ask() { code=0; said=$(smi "$@") || code=$?; return "$code"; }
# What a lost GPU makes nvidia-smi print is no text.
words() {
  case "$code" in
    124) printf 'nvidia-smi gave no answer in time';;
    137) printf 'nvidia-smi was killed, or hung';;
    *)
      short=$(printf '%s' "$said" | tr '\n\t' '  ' | tr -cd ' -~' | tr -s ' ' | cut -c 1-160)
      printf 'nvidia-smi: exit code %s: %s' "$code" "$short";;
  esac
}
none_there() {
  case "$said" in
    *'No GPU instances found'*|*'No compute instances found'*|*'No MIG-enabled devices found'*) ;;
    *) return 1;;
  esac
}
# listed: ask for all GPUs; one that is lost is told in place of its line, and the status is then its own.
listed() { ask -L || case "$said" in *'Unable to determine the device handle'*) ;; *) return 1;; esac; }
# locate: put the index of the GPU $uuid into $gpu. By `-i UUID` no GPU at all is found while another is lost. Whether
# -L goes on behind the lost one nobody knows: what it does not list then is asked for by one index after the other.
locate() {
  listed || { fails "GPU $uuid does not answer ($(words))"; return 1; }
  gpu=$(printf '%s\n' "$said" | sed -n "s/^GPU \([0-9][0-9]*\): .*(UUID: $uuid)\$/\1/p")
  [ -z "$gpu" ] || return 0
  [ "$code" -ne 0 ] || { fails "GPU $uuid does not answer: nvidia-smi -L does not list it"; return 1; }
  without=$(words); at=0
  for each in "$proc"/driver/nvidia/gpus/*; do
    if ask -i "$at" --query-gpu=uuid --format=csv,noheader && [ "$said" = "$uuid" ]; then gpu=$at; return 0; fi
    at=$((at + 1))
  done
  fails "GPU $uuid does not answer ($without)"
}
# look: read $gpu, $current and $pending of the GPU $uuid
look() {
  locate || return 1
  ask -i "$gpu" --query-gpu=uuid,mig.mode.current,mig.mode.pending --format=csv,noheader &&
    [ "$uuid" = "${said%%,*}" ] || { fails "GPU $uuid does not answer ($(words))"; return 1; }
  modes=${said#*, }; current=${modes%%,*}; pending=${modes#*, }
}
# read_instances: put `ID PROFILE:START=SIZES` of every GPU instance of $gpu into $found
read_instances() {
  found=''
  if ask mig -i "$gpu" -lgi || none_there; then :
  else fails "the GPU instances of GPU $gpu cannot be read ($(words))"; return 1; fi
  if none_there; then return 0; fi
  listed=$said
  if ask mig -i "$gpu" -lci || none_there; then :
  else fails "the compute instances of GPU $gpu cannot be read ($(words))"; return 1; fi
  found=$(printf '%s\n--\n%s\n' "$listed" "$said" | awk '
    $1 == "--" {compute = 1}
    $1 == "|" && $3 == "MIG" && !compute {split($7, place, ":"); placed[$6] = $4 ":" place[1]}
    $1 == "|" && $4 == "MIG" && compute {split($8, place, ":"); sizes[$3, ++count[$3]] = place[2]}
    END {
      for (id in placed) {
        line = ""
        for (size = 8; size; size--) for (n = 1; n <= count[id]; n++) if (sizes[id, n] == size) line = line "," size
        print id, placed[id] "=" substr(line, 2)
      }
    }' | sort -n)
  [ -n "$found" ] || { fails "the instances of GPU $gpu cannot be understood ($(words))"; return 1; }
}
"""

_HOLDERS = r"""
minor_of() {
  information=$(grep -lF "$uuid" "$proc"/driver/nvidia/gpus/*/information 2>/dev/null | head -n 1)
  minor=''; [ -z "$information" ] || minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$information")
  printf '%s' "${minor:-$gpu}"
}
having_open() { find "$proc"/[0-9]*/fd -maxdepth 1 -lname "$1" 2>/dev/null | awk -F/ '{print $(NF - 2)}'; }
# holders [GI]: print the processes that have the GPU open, or one of its GPU instances with what is within, as the
# kernel says: for each the driver names a device, which its users open besides the GPU's own
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
start_stopped() {
  [ -e "$checkpoint/stopped" ] || return 0
  left=''
  for unit in $(cat "$checkpoint/stopped"); do
    systemctl reset-failed "$unit" 2>/dev/null || true
    systemctl start "$unit" </dev/null || left="$left $unit"
  done
  [ -z "$left" ] || { fails "stopped, and does not start again:$left"; return 1; }
}
"""

_REACHING = r"""
instances_of() { printf '%s' "$1" | sed -e 's/^off$//' -e 's/^on *//'; }
mode_of() { case "$1" in off) echo Disabled;; *) echo Enabled;; esac; }
# to_go WORDS: print the ID of each instance in $found that is none of the words; none where all are to stay ($keep)
to_go() {
  [ -z "${keep:-}" ] || return 0
  printf '%s\n' "$found" | while read -r id word; do
    case " $1 " in *" $word "*) ;; *) [ -z "$id" ] || echo "$id";; esac
  done
}
# free WANTED: see that nobody holds what is about to go of $uuid, before anything does
free() {
  look && read_instances || return 1
  if [ "$current" != "$(mode_of "$1")" ]; then release; return; fi
  for id in $(to_go "$1"); do release "$id" || return 1; done
}
switch() {
  number=1; [ "$1" = Enabled ] || number=0
  ask -i "$gpu" -mig "$number" || { fails "GPU $gpu does not change its MIG mode ($(words))"; return 1; }
  answer=$(words)
  look || return 1
  [ "$pending" = "$1" ] || { fails "GPU $gpu does not take MIG mode $1 ($answer)" target; return 1; }
  [ "$current" != "$1" ] || return 0
  waits=yes
  [ -n "$reset" ] || { fails "MIG mode $1 of GPU $gpu waits for a reset ($answer)"; return 1; }
  patience=300
  ask --gpu-reset -i "$gpu" || { refused "GPU $gpu refuses a reset"; return 1; }
  patience=60; look || return 1
  [ "$current" = "$1" ] || { fails "MIG mode $1 of GPU $gpu is still pending after its reset" target; return 1; }
  waits=''
}
removed() { ask mig -i "$gpu" -gi "$1" "$2" || none_there; }
destroy() {
  for what in -dci -dgi; do
    if removed "$1" "$what"; then continue; fi
    if [ "$code" -eq 19 ]; then release || return 1; removed "$1" "$what" && continue; fi
    fails "GPU instance $1 of GPU $gpu cannot be destroyed ($(words))"; return 1
  done
}
# Say whether the GPU $uuid is in the machine no more: nvidia-smi tells of every GPU that the driver has, and not of it.
is_gone() {
  ask -L || return 1
  case "$said" in *"$uuid"*) return 1;; esac
  has=$(find "$proc/driver/nvidia/gpus" -mindepth 1 -maxdepth 1 2>/dev/null | wc -l)
  [ "$has" -gt 0 ] && [ "$has" -eq "$(printf '%s\n' "$said" | grep -c '^GPU ')" ]
}
# reach UUID WANTED: bring a GPU to a layout; what it has of it stays as it is
reach() {
  uuid=$1; why=''; blame=''; waits=''; patience=60; mode=$(mode_of "$2"); asked=$(instances_of "$2")
  look || return 1
  if [ "$current" != "$mode" ]; then
    read_instances || return 1
    for id in $(to_go ''); do destroy "$id" || return 1; done
    release && switch "$mode" || return 1
  elif [ "$pending" != "$mode" ]; then switch "$mode" || return 1
  fi
  [ "$mode" = Enabled ] || return 0
  read_instances || return 1
  for id in $(to_go "$asked"); do destroy "$id" || return 1; done
  there=$(printf '%s\n' "$found" | cut -d' ' -f2 | tr '\n' ' ')
  profiles=''
  for word in $asked; do
    case " $there " in *" $word "*) continue;; esac
    if [ -z "$profiles" ]; then
      ask mig -i "$gpu" -lgip || { fails "the profiles of GPU $gpu cannot be read ($(words))"; return 1; }
      profiles=$said
    fi
    create "$word" || return 1
  done
  read_instances || return 1
  lacks=$(lacking "$asked"); more=$(to_go "$asked" | tr '\n' ' ')
  [ -z "$lacks$more" ] || {
    fails "GPU $gpu has not what it said it created: missing${lacks:- nothing}, too much ${more:-nothing}" target
    return 1
  }
}
# lacking WORDS: print the words that no instance in $found is
lacking() {
  has=$(printf '%s\n' "$found" | cut -d' ' -f2 | tr '\n' ' ')
  for word in $1; do case " $has " in *" $word "*) ;; *) printf ' %s' "${word%%=*}";; esac; done
}
"""

# They need $cdi and $mark besides: gpunode's own specification, and its first line.
_CDI = r"""
# renew_cdi: a specification names each instance: one that gpunode had made is made anew
renew_cdi() {
  [ "$(head -n 1 "$cdi" 2>/dev/null)" = "$mark" ] || return 0
  if { printf '%s\n' "$mark"; timeout -k 5 60 nvidia-ctk cdi generate </dev/null; } > "$cdi.gpunode-new"; then
    chmod 644 "$cdi.gpunode-new" && sync "$cdi.gpunode-new" && mv -fT "$cdi.gpunode-new" "$cdi"
  else
    rm -f "$cdi.gpunode-new"; fails "nvidia-ctk does not make the CDI specification $cdi anew"; return 1
  fi
}
"""

FUNCTIONS = "\n".join(part.strip() for part in (_ASKING, _HOLDERS, CREATING, _REACHING, _CDI))
