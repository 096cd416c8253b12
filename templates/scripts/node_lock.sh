# Takes the lock of this node, and holds it until standard input ends: with the connection of the run that asks for it.
# Prints `taken`; `held PROCESS SINCE HOLDER` where another run has it; `waits` and the same where it waits for that:
# an agent's pull, a holder that is not known, any holder where $waits is `yes`, for $patience seconds. Takes $lock, the
# file, and $by, who runs this.

# shellcheck disable=SC2154  # set by whoever sends it

mkdir -p "${lock%/*}"
umask 077
exec 9>> "$lock"
# Whoever can open it can hold it.
chmod 600 "$lock"
# The file names the last holder: of one that died, nothing is known.
read_holder() {
  process='' since='' holder=''
  read -r process since holder < "$lock" || true
  [ -n "$holder" ] && [ -d "/proc/$process" ] || holder=''
}
if ! flock -n 9; then
  read_holder
  # A holder writes its name right after it took the lock.
  [ -n "$holder" ] || { sleep 1; read_holder; }
  if [ "$holder" = "$by" ]; then
    # Another host of this run is the same machine.
    echo taken; exec cat > /dev/null
  fi
  case "$waits $holder" in
    yes*|*' '|*gpunode-agent*) echo "waits $process $since $holder"; flock -w "$patience" 9 || exit 75;;
    *) echo "held $process $since $holder"; exit 75;;
  esac
fi
printf '%s %s %s\n' "$$" "$(date -u +%Y-%m-%dT%H:%MZ)" "$by" > "$lock"
echo taken
exec cat > /dev/null
