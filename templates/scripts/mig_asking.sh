# Functions: a GPU is asked for its MIG mode and instances, by nvidia-smi.
# What a call leaves: $why, the reason where it failed; $blame, where what is desired can never be had; $waits, where a
# mode waits for a reset or a boot. They need $stop_units, $reset (may a GPU be reset), $checkpoint and $proc.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; read by what stands beside it

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
