# A function, on top of apt_get.sh.
# read_lists COMMAND... calls `COMMAND... update` until its lock is free, and leaves what it said in $said.
# DPkg::Lock::Timeout does not cover the lock of the lists, which apt-daily holds after a boot, and the apt of a run
# whose controller died.

# shellcheck disable=SC2034  # read by what stands beside it

read_lists() {
  tries=0
  until said=$("$@" update 2>&1); do
    case "$said" in *"Could not get lock"*) ! time_left || continue;; esac
    echo "$said" >&2; return 1
  done
}
