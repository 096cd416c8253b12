# Functions, on top of gpunode/packages/families/pacman_needs.sh, whose $DATABASE they take.
# What is installed comes from the package's file: so pacman's own lists stay as old as the system is.
# pacman_run ARGUMENT... calls pacman. saved_file FOLDER NAME VERSION and cached_file NAME VERSION print a package's
# file.
# brought NAME... downloads packages and what they need, and prints the paths of those that are not there at that
# version.

pacman_run() { pacman --noconfirm --noprogressbar "$@" < /dev/null; }
saved_file() {
  for file in "$1/$2-$3-"*.pkg.tar*; do
    case "$file" in *.sig) continue;; esac
    if [ -f "$file" ] && [ "$(pacman -Qp "$file" 2>/dev/null)" = "$2 $3" ]; then printf '%s' "$file"; return 0; fi
  done
  return 1
}
cached_file() {
  for packages in $(pacman-conf CacheDir | sed 's|/*$||'); do
    if saved_file "$packages" "$1" "$2"; then return 0; fi
  done
  return 1
}
# Downloads packages and what they need, and prints the paths of those that are not there at that version.
brought() {
  asked -Sw --noprogressbar --dbpath "$DATABASE" "$@" >&2 < /dev/null || return 1
  listed=$(asked -Sp --needed --dbpath "$DATABASE" --print-format '%n %v' "$@") || return 1
  printf '%s\n' "$listed" | while read -r name version; do
    [ -n "$name" ] || continue
    cached_file "$name" "$version" || { echo "gpunode: $name $version was fetched and is not there" >&2; exit 1; }
    echo
  done
}
