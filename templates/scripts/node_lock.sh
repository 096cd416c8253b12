# Takes the lock of this node, and holds it until standard input ends: with the connection of the run that asks for it.
# Prints `taken`; `held PROCESS SINCE HOLDER` where another run has it; `waits` and the same where it waits for that:
# an agent's pull, a holder that is not known, any holder where $waits is `yes`, for $patience seconds; `foreign PROCESS
# USER` where a process of another user than root held it, whose lock does not count. Takes $lock, the file, and $by,
# who runs this.

# shellcheck disable=SC2154  # set by whoever sends it

command -v flock > /dev/null || { echo 'flock: not found' >&2; exit 75; }
mkdir -p "${lock%/*}"
umask 077
is_current() { [ "$(stat -Lc %d:%i /proc/self/fd/9)" = "$(stat -Lc %d:%i "$lock")" ]; }
# The kernel says which processes hold the lock. The file names the last run, which may have ended, and a user who
# opened a file of mode 0644 from an older gpunode can hold its lock for ever.
read_holder() {
  process='' since='' holder='' foreign='' known=''
  read -r named named_since name < "$lock" || true
  device=$(awk '
    /^mnt_id:/ {mount = $2}
    $1 == mount {split($3, part, ":"); printf "%02x:%02x", part[1], part[2]; exit}
  ' /proc/self/fdinfo/9 /proc/self/mountinfo)
  # shellcheck disable=SC2013  # paths of /proc have no blanks
  for entry in $(grep -rls "FLOCK.* $device:$(stat -Lc %i /proc/self/fd/9) 0 EOF" /proc/[0-9]*/fdinfo); do
    each=${entry#/proc/}; each=${each%%/*}
    user=$(awk '/^Uid:/ {print $2}' "/proc/$each/status" 2>/dev/null) || continue
    case "${user:-0}" in 0|"$(id -u)") ;; *) foreign="$each $user";; esac
    [ -n "$known" ] || process=$each
    [ "$each" != "$named" ] || known=yes
  done
  # A process of another container is not seen here.
  [ -n "$process" ] || [ ! -d "/proc/$named" ] || { process=$named; known=yes; }
  if [ -n "$known" ] && [ -n "$name" ]; then since=$named_since holder=$name
  elif [ -n "$process" ]; then
    known='' holder="$(cat "/proc/$process/comm" 2>/dev/null || true) (a process without a name in the lock)"
    since=$(awk '/^btime/ {boot = $2} FILENAME ~ /[0-9]/ {sub(/.*\) /, ""); print int(boot + $20 / 100)}' \
      /proc/stat "/proc/$process/stat" 2>/dev/null || true)
    since=$(date -u -d "@${since:-0}" +%Y-%m-%dT%H:%MZ)
  else known=''
  fi
}
waited=0 said='' again=yes
while :; do
  exec 9>> "$lock"
  # Every process that can open it can hold it.
  chmod 600 "$lock"
  if flock -n 9; then if is_current; then break; else continue; fi; fi
  read_holder
  if [ -n "$foreign" ]; then
    echo "foreign $foreign"
    exec 8>> "$lock.new"
    # Of two runs that replace the file the second one leaves the new file in place.
    if flock -n 8 && is_current; then mv -f "$lock.new" "$lock"; else sleep 1; fi
    exec 8>&-
    continue
  fi
  # A holder writes its name right after it took the lock.
  if [ -z "$known" ] && [ -n "$again" ]; then again=''; sleep 1; continue; fi
  if [ -n "$known" ] && [ "$holder" = "$by" ]; then
    # Another host of this run is the same machine.
    echo taken; exec cat > /dev/null
  fi
  case "$waits $known $holder" in
    yes*|'  '*|*gpunode-agent*) [ "$said" = "$process" ] || echo "waits $process $since $holder"; said=$process;;
    *) echo "held $process $since $holder"; exit 75;;
  esac
  [ "$waited" -lt "$patience" ] || exit 75
  waited=$((waited + 60))
  if flock -w 60 9 && is_current; then break; fi
done
printf '%s %s %s\n' "$$" "$(date -u +%Y-%m-%dT%H:%MZ)" "$by" > "$lock"
echo taken
exec cat > /dev/null
