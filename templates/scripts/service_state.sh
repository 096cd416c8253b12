# A function: service_state UNIT prints to standard error how systemd sees a unit, and the last words of its processes
# since it was started last; where they wrote none, the last lines of its journal.

service_state() {
  systemctl show "$1" -p ActiveState -p SubState -p Result | paste -s -d ' ' - | sed "s|^|$1: |" >&2
  set -- "$1" "$(systemctl show "$1" -p InvocationID | cut -d = -f 2)"
  set -- "$1" "${2:+$(journalctl -q "_SYSTEMD_INVOCATION_ID=$2" -n 8 --no-pager -o cat 2>/dev/null)}"
  if [ -n "$2" ]; then printf '%s\n' "$2" >&2
  else journalctl -q -u "$1" -n 8 --no-pager -o cat >&2 2>/dev/null || true; fi
}
