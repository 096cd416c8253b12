# Functions that tell the driver something of one GPU, and read it back. They take $note, where locked clocks are noted.
# asked ARGUMENTS asks nvidia-smi. short ADDRESS prints a PCI address as elsewhere. told ADDRESS KIND VALUE sets
# something and fails with $why: limit WATTS.00, application MEMORY,GRAPHICS or default, graphics and memory
# LOWEST,HIGHEST or default, ecc 0 or 1. nvidia-smi ends with 0 where a GPU did not take it: only a reading proves it.

# shellcheck disable=SC2154,SC2034  # $note is set by whoever has these functions, who reads $why

# 14: the infoROM of a GPU is corrupted; all answer, and nvidia-smi warns beside that.
asked() {
  ended=0
  answer=$(timeout -k 2 30 nvidia-smi "$@") || ended=$?
  printf '%s\n' "$answer" | sed '/^WARNING/d'
  [ "$ended" = 14 ] || return "$ended"
}
short() {
  address=$(printf '%s' "$1" | tr 'A-F' 'a-f')
  case "$address" in ????????:*) address=${address#0000};; esac
  printf '%s' "$address"
}
# reads ADDRESS FIELDS: without the blanks between them.
reads() { asked -i "$1" "--query-gpu=$2" --format=csv,noheader,nounits | tr -d ' '; }
# proven ADDRESS FIELDS DESIRED
proven() {
  actual=$(reads "$1" "$2") || actual="no answer ($actual)"
  [ "$actual" = "$3" ] && return 0
  why="GPU $1: $2 is $actual after it was set to $3; nvidia-smi said: $said"
  return 1
}
told() {
  flag=
  case "$2 $3" in
    limit\ *) flag="-pl $3";;
    application\ default) flag=-rac;;
    application\ *) flag="-ac $3";;
    graphics\ default) flag=-rgc;;
    graphics\ *) flag="-lgc $3";;
    memory\ default) flag=-rmc;;
    memory\ *) flag="-lmc $3";;
    ecc\ *) flag="-e $3";;
    *) why="nobody knows how to set $2"; return 1;;
  esac
  # shellcheck disable=SC2086  # A flag and its value.
  if ! said=$(asked -i "$1" $flag 2>&1); then why="GPU $1: nvidia-smi $flag failed: $said"; return 1; fi
  said=$(printf '%s' "$said" | tr '\n' ' ')
  application=clocks.applications.memory,clocks.applications.graphics
  defaults=clocks.default_applications.memory,clocks.default_applications.graphics
  case "$2 $3" in
    limit\ *) proven "$1" power.limit "$3";;
    application\ default) proven "$1" "$application" "$(reads "$1" "$defaults")";;
    application\ *) proven "$1" "$application" "$3";;
    ecc\ 0) proven "$1" ecc.mode.pending Disabled;;
    ecc\ 1) proven "$1" ecc.mode.pending Enabled;;
    *) locked "$1" "$2" "$3" "$flag";;
  esac
}
# locked ADDRESS KIND VALUE FLAG: no driver tells which clocks are locked; its words do, and that no clock is above.
locked() {
  case "$said" in
    *'not supported'*|*'Not Supported'*|*'Unable to'*|*'not valid'*) why="GPU $1: nvidia-smi $4: $said"; return 1;;
  esac
  if [ "$3" != default ]; then
    case "$said" in *'clocks set to'*) ;; *) why="GPU $1: nvidia-smi $4 did not set it: $said"; return 1;; esac
    field=clocks.gr; [ "$2" = graphics ] || field=clocks.mem
    tries=0
    # A GPU takes the clock that is nearest, which is a step of 15 MHz away at most, and a moment to get there.
    while now=$(reads "$1" "$field"); do
      case "$now" in ''|*[!0-9]*) break;; esac
      [ "$now" -gt $((${3#*,} + 15)) ] || break
      tries=$((tries + 1))
      [ "$tries" -lt 5 ] || { why="GPU $1: $field is $now MHz after $4; nvidia-smi said: $said"; return 1; }
      sleep 1
    done
  fi
  noted "$1" "$2" "$3"
}
# Those who call it have a $rest of their own: sh knows no local names.
noted() {
  mkdir -p "${note%/*}"
  loaded="module $(stat -c '%i %w' /sys/module/nvidia)"
  others=
  if [ -f "$note" ] && IFS= read -r line < "$note" && [ "$line" = "$loaded" ]; then
    others=$(grep -v -e '^module ' -e "^$1 $2 " "$note") || true
  fi
  {
    echo "$loaded"
    [ -z "$others" ] || printf '%s\n' "$others"
    [ "$3" = default ] || echo "$1 $2 $3"
  } > "$note.new"
  mv -f "$note.new" "$note"
}
