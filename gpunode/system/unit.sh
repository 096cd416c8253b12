# Asks systemd once for all units that a question's parts tell of.
# Takes UNITS: full names, and globs of units that systemd has loaded, but no templates: systemctl would end there. Sets
# $SHOWN: lines PROPERTY=VALUE of each unit, and behind them a line of a dot.
#
# Timestamps are in UTC and with microseconds as far as systemd can: 246 and older know no such option, up to 250 `show`
# does not heed it, and prints whole seconds (gpunode/system/service.py).
#
# show_units NAME... adds units to $SHOWN. unit NAME sets $unit to the lines of one, and fails where there are none.
# says PROPERTY sets $SAID to the last value of a property in $unit, empty where there is none.
# tell_service NAME prints whether the unit in $unit stays up (gpunode/system/service.py): up= in hundredths of a
# second, and said= where it ended, or was started again within the last minute. All go line by line: to cut a long text
# by ${x#*y} takes sh a time that grows by the square of its length.
# daemon NAME PROGRAM prints a unit's states, and sets $BINARY, $ACTIVE and $ARGUMENTS (lines) of its daemon; fails
# where neither the unit nor PATH has the program.
#
# shellcheck disable=SC2034  # The parts read $SAID, $ACTIVE and $ARGUMENTS.

show() {
  properties=Names,LoadState,ActiveState,SubState,UnitFileState,ActiveEnterTimestamp,ExecStart,MainPID,Environment
  properties=$properties,FragmentPath,Description,NRestarts,Result,ActiveEnterTimestampMonotonic,NeedDaemonReload
  set -- --all -p "$properties" "$@"
  LC_ALL=C TZ=UTC systemctl show "$@" --timestamp=us+utc || LC_ALL=C TZ=UTC systemctl show "$@"
}
# offline NAME... prints what the unit files of a root directory say that no systemd has booted: nothing of it runs.
offline() {
  for name in "$@"; do
    case "$name" in *[*?]*) continue;; esac
    state=$(systemctl is-enabled "$name"); load=loaded
    case "$state" in ''|not-found) load=not-found; state=;; masked*) load=masked;; esac
    printf '%s\n' "Names=$name" "LoadState=$load" ActiveState=inactive SubState=dead "UnitFileState=$state" ''
  done
}
show_units() {
  # No here-document: bash before 5.1 needs a file for one, and a full disk would make every unit one that is not there.
  said=$(show "$@" | sed 's/^$/./')
  # In the root directory of an image that is made systemctl tells nothing of what runs.
  if [ -z "$said" ] && [ ! -d /run/systemd/system ]; then said=$(offline "$@" | sed 's/^$/./'); fi
  SHOWN=$SHOWN$said$NL.$NL
}
unit() {
  unit=; found=
  set -f; IFS=$NL
  for line in $SHOWN; do
    case "$line" in
      .) [ -z "$found" ] || break; unit=; continue;;
      Names=*) case " ${line#Names=} " in *" $1 "*) found=yes;; esac;;
    esac
    unit=$unit$line$NL
  done
  unset IFS; set +f
  [ -n "$found" ] || { unit=; return 1; }
}
says() {
  SAID=
  set -f; IFS=$NL
  for line in $unit; do case "$line" in "$1="*) SAID=${line#*=};; esac; done
  unset IFS; set +f
}
tell_service() {
  says LoadState; [ "$SAID" = loaded ] || return 0
  says SubState; echo "SubState=$SAID"
  says Result; echo "Result=$SAID"
  says NRestarts; restarts=${SAID:-0}; echo "restarts=$restarts"
  says ActiveState
  if [ "$SAID" = active ]; then
    # Both count from the boot, whatever somebody sets the clock to.
    says ActiveEnterTimestampMonotonic
    [ "${#SAID}" -gt 4 ] || return 0
    read -r now rest < /proc/uptime
    up=$((${now%.*}${now#*.} - ${SAID%????})); echo "up=$up"
    [ "$restarts" -gt 0 ] && [ "$up" -lt 6000 ] || return 0
  fi
  journal=$(timeout -k 2 10 journalctl --quiet --no-pager --output=cat --unit="$1" --lines=300)
  # A daemon's errors are many and often harmless; what ends it is none of those.
  printed said "$(printf '%s\n' "$journal" | grep -E 'level=(fatal|panic)|^(panic|fatal error|failed to )' | tail -n 1)"
  # One that exits by itself says why in its last line; the last line of one that is killed is about something else.
  printed said "$(printf '%s\n' "$journal" | sed -nE '/(Main|Control) process exited|Failed with result/{
    /code=exited/{ x; /^Start(ing|ed) /!p; x; }; p; }; h' | tail -n 3)"
}
daemon() {
  unit "$1"; says ExecStart; started=$SAID; BINARY=
  case "$SAID" in '{ path='*) BINARY=${SAID#'{ path='}; BINARY=${BINARY%%[ ;]*};; esac
  [ -n "$BINARY" ] || BINARY=$(command -v "$2") || return
  tell_service "$1"
  for name in UnitFileState ActiveState; do says "$name"; [ -z "$SAID" ] || echo "$name=$SAID"; done
  ACTIVE=$SAID
  says MainPID
  # The process' own arguments, where it runs: the unit's may name variables.
  case "$SAID" in
    ''|0) set -f; ARGUMENTS=; for word in $started; do ARGUMENTS=$ARGUMENTS$word$NL; done; set +f;;
    *) ARGUMENTS=$(tr '\0' '\n' < "/proc/$SAID/cmdline");;
  esac
}
SHOWN=
set -f
# shellcheck disable=SC2086  # They are words, and no names of files.
show_units $UNITS
set +f
