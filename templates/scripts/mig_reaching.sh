# Functions, on top of mig_asking.sh, mig_holders.sh and mig_creating.sh: a GPU is brought to a layout.
# A layout is a line of text (gpunode/components/mig/boot.py): a GPU's UUID, then `off`, or `on` and one word for each
# GPU instance, PROFILE:START=SIZES, the sizes of its compute instances. The GPU's own lists say by which number a
# profile goes; every instance is created at its own start, so that no order of creation can fail.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; read by what stands beside it

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
  # Locked clocks go with it, which no driver tells (power_apply.sh).
  rm -f /run/gpunode/power
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
