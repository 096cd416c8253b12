# Functions: how apt-get is called.
# apt_get ARGUMENT... calls it; packages never ask questions. A lock that unattended-upgrades holds is waited for, not
# failed on: for five minutes, or for as long as the node's own configuration of apt says.
# time_left says whether there is time left since `tries=0`, having slept a little.
# unlocked waits for the lock, and ends the script in apt's words, which name the process that holds it: dpkg and
# apt-mark tell its number alone, and do not wait.

lock_seconds=''
eval "$(apt-config shell lock_seconds DPkg::Lock::Timeout)"
case "$lock_seconds" in ''|*[!0-9]*) lock_seconds=300;; esac
apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout="$lock_seconds" \
    -o Dpkg::Options::=--force-confold "$@"
}
# Says whether there is time left since `tries=0`, having slept a little.
time_left() { tries=$((tries + 1)); [ $((tries * 2)) -le "$lock_seconds" ] && sleep 2; }
# Waits for the lock, and fails in apt's words, which name the process that holds it: dpkg and apt-mark tell its number
# alone, and do not wait.
unlocked() {
  heard=$(apt_get check 2>&1) && return 0
  case "$heard" in
    *"Could not get lock"*)
      printf '%s\n' "$heard" | sort -u >&2
      echo "gpunode: another program is at work on the node's packages; nothing was changed" >&2; exit 1;;
  esac
}
