# Functions of the driver's transaction by pacman; operations/families/family.py says what each does.
# On top of pacman_files.sh and pacman_unlocked.sh, and of `of_driver`.

# shellcheck disable=SC2154,SC2034  # set by whoever sends it; read by what stands beside it

driver_packages() {
  of_driver | while read -r want name version; do
    case "$name" in linux|linux-*) continue;; esac
    if pacman -Qkq "$name" > /dev/null 2>&1; then echo "$name $version $want installed"
    else echo "$name $version $want incomplete"; fi
  done | sort -u
}
fetch() {
  failed=0
  for item in "$@"; do
    name=${item%%=*}; version=${item#*=}; got=''
    for lists in "$DATABASE" "$(pacman-conf DBPath)"; do
      pacman -Sl --dbpath "$lists" 2>/dev/null | grep -qF " $name $version" || continue
      pacman_run -Swdd --dbpath "$lists" "$name" || continue
      if got=$(cached_file "$name" "$version"); then cp "$got" .; break; fi
    done
    [ -n "$got" ] || failed=1
  done
  return "$failed"
}
is_installed() { [ "$(pacman -Q "${1%%=*}" 2>/dev/null)" = "${1%%=*} ${1#*=}" ]; }
stated() { pacman -Q "$1" 2>/dev/null | cut -d' ' -f2 | grep . || echo absent; }
save_choices() { pacman -Qeq > "$checkpoint/explicit"; }
# shellcheck disable=SC2013
restore_choices() {
  for package in $(cat "$checkpoint/names"); do
    reason=--asdeps; ! grep -qxF "$package" "$checkpoint/explicit" || reason=--asexplicit
    pacman -D "$reason" "$package" > /dev/null 2>&1
  done
}
release() { :; }
keep() { :; }
# shellcheck disable=SC2086
install_driver() {
  coming=''; leaving=''
  for item in $arguments; do
    case "$item" in
      *=*) is_installed "$item" || coming="$coming ${item%%=*}";;
      *-) ! pacman -Q "${item%-}" > /dev/null 2>&1 || leaving="$leaving ${item%-}";;
    esac
  done
  folder=$checkpoint
  new=''
  [ -z "$coming" ] || new=$(brought $coming) || return 1
  unlocked
  # What depends on it gets the other one a moment later.
  [ -z "$leaving" ] || pacman_run -Rdd $leaving || return 1
  [ -n "$new" ] || return 0
  pacman -Qq > "$checkpoint/before"
  pacman_run -U --ask 4 $new || return 1
  # What came along was not asked for by anybody.
  along=$(pacman -Qq | grep -vxF -f "$checkpoint/before" | grep -vxF "$(printf '%s\n' $coming)" || true)
  [ -z "$along" ] || pacman -D --asdeps $along > /dev/null
}
remove_driver() { pacman_run -R "$@"; }
unneeded() { pacman -Qdtq || true; }
remove_unneeded() { pacman_run -R "$@"; }
forget() { :; }
finish_half() {
  tries=0
  while [ "$(lock_state)" = held ] && [ "$tries" -lt 300 ]; do tries=$((tries + 1)); sleep 1; done
  if [ "$(lock_state)" = stale ]; then rm -f "$(own_lock)"; fi
}
finish_first() {
  [ -n "$names" ] || return 1
  for item in $names; do driver_packages | grep -q "^$item .* installed$" || return 1; done
}
# By files alone: it needs no repository, and takes whatever an interruption left.
# shellcheck disable=SC2086
put_back() {
  for package in $added; do pacman_run -Rdd "$package"; done
  [ -z "$files" ] || pacman_run -U --ask 4 --overwrite '*' $files || pacman_run -Udd --ask 4 --overwrite '*' $files
}
