"""Shell text that every operation on apt's packages shares: what waits for locks, reads lists, finishes dpkg's work."""

from __future__ import annotations

from gpunode.shell_file import shell_file

# A lock held by unattended-upgrades is waited for, not failed on: for five minutes, or for as long as the node's own
# apt configuration says. Packages never ask questions.
APT_GET = """
lock_seconds=''
eval "$(apt-config shell lock_seconds DPkg::Lock::Timeout)"
case "$lock_seconds" in ''|*[!0-9]*) lock_seconds=300;; esac
apt_get() {
  DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout="$lock_seconds" \\
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
      printf '%s\\n' "$heard" | sort -u >&2
      echo "gpunode: another program is at work on the node's packages; nothing was changed" >&2; exit 1;;
  esac
}
"""

# DPkg::Lock::Timeout does not cover the lock of the lists, which apt-daily holds after a boot, and the apt of a run
# whose controller died.
READ_LISTS = """
read_lists() {
  tries=0
  until said=$("$@" update 2>&1); do
    case "$said" in *"Could not get lock"*) ! time_left || continue;; esac
    echo "$said" >&2; return 1
  done
}
"""

# dpkg was killed at its work (a reboot, say): apt refuses everything until that is finished.
FINISH = """
tries=0
until said=$(dpkg --force-confold --configure -a 2>&1 </dev/null); do
  case "$said" in *"lock was locked by another process"*) ! time_left || continue;; esac
  break
done
unlocked
apt_get --fix-broken install || { echo "$said" >&2
  echo "gpunode: dpkg was interrupted, and what it began cannot be finished; see dpkg --audit on the node" >&2
  exit 1; }
"""

# Refuses a repository's index that is older than the last that was read.
NOT_OLDER = f"{shell_file('index_date', 'operations')}\n"

# Where a repository cannot be reached or is wrongly signed apt says so, goes on with the lists of before, and exits 0.
# Of the repository that the packages come from (the one of gpunode's that $1 names) this is an error.
REFRESH = (
    NOT_OLDER
    + """
refresh() {
  read_lists apt_get || {
    echo "gpunode: the package lists could not be refreshed; nothing was installed" >&2; exit 1; }
  for uri in $(sed -n 's/^URIs: //p' "/etc/apt/sources.list.d/gpunode-$1.sources" 2>/dev/null |
      sed "s/[$](ARCH)/$(dpkg --print-architecture)/g"); do
    case "$said" in *"GPG error: ${uri%/}"["/ "]*|*"Failed to fetch ${uri%/}"["/ "]*)
      printf '%s\\n' "$said" >&2
      echo "gpunode: the list of the repository $1 could not be refreshed; nothing was installed" >&2; exit 1;;
    esac
  done
  not_older "$1"
}
"""
)

# apt-mark needs dpkg's lock, which somebody may take between the two.
MARK = """
mark() {
  tries=0
  until said=$(apt-mark "$@" 2>&1); do
    case "$said" in *"lock was locked by another process"*) ! time_left || continue;; esac
    echo "$said" >&2; return 1
  done
}
"""

# The packages in $hold, and those in $unhold no more.
HOLD = f"""{APT_GET}{MARK}
unlocked
if [ -n "$hold" ]; then mark hold $hold; fi
if [ -n "$unhold" ]; then mark unhold $unhold; fi
"""
