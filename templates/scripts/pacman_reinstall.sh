# Functions for reinstall.sh, by pacman. On top of pacman_files.sh, pacman_unlocked.sh and pacman_refresh.sh.

owned() {
  pacman -Ql | while read -r package path; do
    # shellcheck disable=SC2254  # It is a pattern.
    case "$path" in */) ;; $1) echo "$package $path";; esac
  done
}
# shellcheck disable=SC2086  # They are words.
again() {
  files=''
  pacman_run -Sw --dbpath "$DATABASE" "$@" > /dev/null || true
  for name in "$@"; do
    file=$(cached_file "$name" "$(pacman -Q "$name" | cut -d ' ' -f 2)") || return 1
    files="$files $file"
  done
  unlocked
  pacman_run -U --overwrite '*' $files
}
