# A function, on top of apt_get.sh.
# mark ARGUMENT... calls apt-mark; it needs dpkg's lock, which somebody may take meanwhile.

# shellcheck disable=SC2034  # read by what stands beside it

mark() {
  tries=0
  until said=$(apt-mark "$@" 2>&1); do
    case "$said" in *"lock was locked by another process"*) ! time_left || continue;; esac
    echo "$said" >&2; return 1
  done
}
