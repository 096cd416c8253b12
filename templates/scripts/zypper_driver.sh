# Functions of the driver's transaction by zypper; operations/families/family.py says what each does.
# On top of zypper.sh and rpm_driver.sh; $LOCKS is zypper's file of locks.

# shellcheck disable=SC2154  # set by whoever sends it

cached_file() {
  for packages in /var/cache/zypp/packages/* /var/cache/zypp/packages/*/*; do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}
# zypper keeps no packages of its own accord: what a change takes away is fetched for the way back.
fetch() {
  zypp --pkg-cache-dir "$PWD/fetched" download "$@"
  find fetched -name '*.rpm' -exec mv -t . {} +
  rm -rf fetched
}
save_choices() { :; }
restore_choices() { :; }
# Locks are lifted for the change alone, also of packages that are to come: what $checkpoint has is put back at once,
# and by `restore` where that is not reached.
# shellcheck disable=SC2046,SC2086
without_locks() {
  [ -f "$LOCKS" ] || { shift; "$@"; return; }
  unlocking $(driver_packages | cut -d' ' -f1) $1 | stage_file "$LOCKS" - && place_file "$LOCKS" || return 1
  shift
  changed=0; "$@" || changed=$?
  stage_file "$LOCKS" - < "$checkpoint/files$(real_file "$LOCKS")" && place_file "$LOCKS" || return 1
  return "$changed"
}
# shellcheck disable=SC2086
install_driver() {
  coming=''; leaving=''; told=''
  for item in $arguments; do
    case "$item" in
      *=*) coming="$coming $item"; told="$told ${item%%=*}";;
      *-) told="$told ${item%-}"; ! rpm -q "${item%-}" > /dev/null 2>&1 || leaving="$leaving !${item%-}";;
    esac
  done
  without_locks "$told" zypp install --no-recommends --auto-agree-with-licenses --oldpackage --force-resolution \
    $coming $leaving
}
remove_driver() { without_locks "$*" zypp remove "$@"; }
unneeded() {
  zypper -n --no-refresh packages --unneeded 2>/dev/null |
    awk -F '|' '$1 ~ /^ *i/ {gsub(/ /, "", $3); print $3}' | sort -u
}
remove_unneeded() { zypp remove "$@"; }
