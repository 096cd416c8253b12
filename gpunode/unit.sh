# Asks systemd once for all units that a question's parts tell of.
# Takes UNITS: names, and globs of units that systemd has loaded. Sets $SHOWN: a block of PROPERTY=VALUE for each.
#
# Timestamps are in UTC and with microseconds as far as systemd can: 246 and older know no such option, up to 250 `show`
# does not heed it, and prints whole seconds (gpunode/started.py).
# unit NAME sets $unit to its block; it fails where systemd said nothing of such a unit.
# next_unit sets $unit to one block after the other, beginning where first_unit was called.
# says PROPERTY sets $SAID to the last value of a property in $unit, empty where there is none.

show_units() {
  properties=Names,LoadState,ActiveState,UnitFileState,ActiveEnterTimestamp,ExecStart,MainPID,Environment,FragmentPath
  set -- --all -p "$properties" "$@"
  LC_ALL=C TZ=UTC systemctl show "$@" --timestamp=us+utc || LC_ALL=C TZ=UTC systemctl show "$@"
}
first_unit() { left=$SHOWN; }
next_unit() {
  [ -n "$left" ] || return 1
  unit=$NL${left%%"$NL$NL"*}$NL
  case "$left" in *"$NL$NL"*) left=${left#*"$NL$NL"};; *) left=;; esac
}
unit() {
  first_unit
  while next_unit; do
    says Names
    case " $SAID " in *" $1 "*) return 0;; esac
  done
  unit=; return 1
}
says() {
  case "$unit" in *"$NL$1="*) SAID=${unit##*"$NL$1="}; SAID=${SAID%%"$NL"*};; *) SAID=;; esac
}
set -f
# shellcheck disable=SC2086  # They are words, and no names of files.
SHOWN=$(show_units $UNITS)
set +f
