# Takes away a lock that was left behind, and ends with what an interrupted change of packages left half-done.
# On top of gpunode/packages/families/pacman_lock.sh.

if [ "$(lock_state)" = stale ]; then
  echo "gpunode: pacman's lock $(own_lock) of $(stat -c %y "$(own_lock)") was left by a pacman that is gone; removed"
  rm -f "$(own_lock)"
fi
half=''
for entry in "$(pacman-conf DBPath | sed 's|/*$||')"/local/*/; do
  [ -s "$entry/desc" ] || half="$half $(basename "$entry")"
done
said=$(pacman -Dk 2>&1) || half="$half $(printf '%s\n' "$said" | tail -n 5)"
[ -z "$half" ] || {
  echo "gpunode: a change of packages was interrupted, and left half-done:$half" >&2
  echo "gpunode: remedy: upgrade the node as a whole (pacman -Syu), or reinstall what is named (pacman -S --overwrite" \
    "'*' NAME), and run again" >&2; exit 1; }
