# Functions: `own_lock` prints the path of pacman's lock; `lock_holder FILE` which process has it, nothing where none
# does; `lock_state` prints none, held or stale: a pacman keeps its lock open, so that a lock without a holder is one
# that was left behind.

own_lock() { printf '%s/db.lck' "$(pacman-conf DBPath | sed 's|/*$||')"; }
lock_holder() { find /proc/[0-9]*/fd -lname "$1" 2>/dev/null | cut -d/ -f3 | head -n 1; }
lock_state() {
  lock=$(own_lock)
  if [ ! -e "$lock" ]; then echo none
  elif [ -n "$(lock_holder "$lock")" ]; then echo held
  # It may have been let go while it was looked for.
  elif [ -e "$lock" ]; then echo stale
  else echo none; fi
}
