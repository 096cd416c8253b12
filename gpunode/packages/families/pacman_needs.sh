# Functions that ask pacman; all but the first need $folder, an empty folder of their own, and $DATABASE, where the
# repositories' lists are as they are now.
# `database` prints where the lists are that count: those, where they were fetched, else the node's own.
# `asked OPTION...` asks pacman by the node's configuration without what it ignores, since what is held is needed, too.
# `needed NAME...` prints NAME VERSION of packages and of all that they need, as if nothing were installed.
# `differing NAME...` prints NAME INSTALLED OFFERED ORDER of those among them that are installed at another version,
# with vercmp's ORDER.

# shellcheck disable=SC2154  # set by whoever sends it

database() {
  for list in "$DATABASE"/sync/*.db; do if [ -e "$list" ]; then printf %s "$DATABASE"; return 0; fi; done
  pacman-conf DBPath
}
asked() {
  [ -e "$folder/pacman.conf" ] || pacman-conf | grep -v '^Ignore' > "$folder/pacman.conf"
  pacman --config "$folder/pacman.conf" --noconfirm "$@"
}
needed() {
  if [ ! -e "$folder/bare" ]; then
    mkdir "$folder/bare" "$folder/bare/local"; ln -s "$(database)/sync" "$folder/bare/sync"
  fi
  asked -Sp --dbpath "$folder/bare" --print-format '%n %v' "$@"
}
differing() {
  pacman -Q > "$folder/installed"
  [ "$#" -gt 0 ] || { : > "$folder/needed"; return 0; }
  needed "$@" > "$folder/needed" || return 1
  awk 'NR == FNR {there[$1] = $2; next} $1 in there && there[$1] != $2 {print $1, there[$1], $2}' \
    "$folder/installed" "$folder/needed" |
    while read -r name mine offered; do echo "$name $mine $offered $(vercmp "$mine" "$offered")"; done
}
