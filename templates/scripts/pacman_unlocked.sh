# A function, on top of gpunode/packages/families/pacman_lock.sh.
# unlocked waits for pacman's lock while a pacman runs, which is never taken away, and ends the script where nobody has
# it open: such a lock was left behind.

unlocked() {
  tries=0
  while :; do
    case $(lock_state) in
      none) return 0;;
      stale)
        echo "gpunode: pacman's lock $(own_lock) of $(stat -c %y "$(own_lock)") was left behind: no program has it" \
          "open; nothing was changed" >&2
        echo "gpunode: remedy: run again, or look at the end of /var/log/pacman.log and remove the lock" >&2
        exit 1;;
    esac
    tries=$((tries + 1))
    [ "$tries" -lt 300 ] || {
      holder=$(lock_holder "$(own_lock)")
      echo "gpunode: pacman is at work for 5 minutes: process $holder ($(cat "/proc/$holder/comm" 2>/dev/null)) has" \
        "$(own_lock); nothing was changed" >&2
      echo "gpunode: remedy: run again when it has ended (\`ps -fp $holder\` on the node)" >&2; exit 1; }
    sleep 1
  done
}
