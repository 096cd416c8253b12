"""Shell text that every operation on apt's packages shares: what waits for locks, reads lists, finishes dpkg's work."""

from __future__ import annotations

# A lock held by unattended-upgrades is waited for, not failed on; packages never ask questions.
_APT = "DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold"
APT_GET = f'apt_get() {{ {_APT} "$@"; }}\n'

# DPkg::Lock::Timeout does not cover the lock of the lists, which apt-daily holds after a boot, and the apt of a run
# whose controller died.
READ_LISTS = """
read_lists() {
  tries=0
  until said=$("$@" update 2>&1); do
    case "$said" in
      *"Could not get lock"*) tries=$((tries + 1)); [ "$tries" -lt 150 ] || { echo "$said" >&2; return 1; }; sleep 2;;
      *) echo "$said" >&2; return 1;;
    esac
  done
}
"""

# dpkg was killed at its work (a reboot, say): apt refuses everything until that is finished.
FINISH = """
tries=0
until said=$(dpkg --force-confold --configure -a 2>&1 </dev/null); do
  case "$said" in
    *"lock was locked by another process"*) tries=$((tries + 1)); [ "$tries" -lt 150 ] || break; sleep 2;;
    *) break;;
  esac
done
apt_get --fix-broken install || { echo "$said" >&2
  echo "gpunode: dpkg was interrupted, and what it began cannot be finished; see dpkg --audit on the node" >&2
  exit 1; }
"""

REFRESH = """
refresh() {
  read_lists apt_get || {
    echo "gpunode: the package lists could not be refreshed; see apt's message above" >&2; exit 1; }
}
"""

# apt-mark does not wait for dpkg's lock, which unattended-upgrades may hold for minutes.
MARK = """
mark() {
  tries=0
  until said=$(apt-mark "$@" 2>&1); do
    tries=$((tries + 1)); [ "$tries" -lt 150 ] || { echo "$said" >&2; return 1; }; sleep 2
  done
}
"""
