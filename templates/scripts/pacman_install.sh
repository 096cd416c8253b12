# Installs packages: pacman_install.sh NAME[=VERSION]... On top of pacman_files.sh, pacman_unlocked.sh and
# pacman_refresh.sh. It takes $own and $foreign, patterns of the driver's packages and of those that only look so.

# shellcheck disable=SC2154  # set by whoever sends it

folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
unlocked
refresh
offered() {
  pacman -Sl --dbpath "$(database)" | awk -v name="$1" '$2 == name {print $3; exit}'
}
fits() {
  upstream=${1#*:}
  case "$2" in
    '') ;;
    *rc*) case "$upstream" in "$2"|"$2"[!0-9A-Za-z]*) ;; *) return 1;; esac;;
    *) case "$upstream" in
         "$2"rc*|"$2"[._-]rc*|"$2"alpha*|"$2"beta*) return 1;;
         "$2"|"$2"[!0-9A-Za-z]*) ;;
         *) return 1;;
       esac;;
  esac
}
names=''; expected=''
for wanted in "$@"; do
  name=${wanted%%=*}; rule=''; case "$wanted" in *=*) rule=${wanted#*=};; esac
  version=$(offered "$name")
  if [ -z "$version" ] || ! fits "$version" "$rule"; then
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. A rolling release has one:" \
      "${version:-none}" >&2
    echo "gpunode: remedy: ask for that one, or have /etc/pacman.d/mirrorlist name the archive of a day that had the" \
      "other (https://archive.archlinux.org/repos/YYYY/MM/DD)" >&2; exit 1
  fi
  names="$names $name"; expected="$expected $name=$version"
done
# A driver that is held back is a choice; anything else that is behind makes this a partial upgrade.
# shellcheck disable=SC2086
behind=$(differing $names | awk -v own="$own" -v foreign="$foreign" -v asked=" $names " \
  '$4 == -1 && index(asked, " " $1 " ") == 0 && !($1 ~ own && $1 !~ foreign) {print "  " $1, $2, "(there is " $3 ")"}')
if [ -n "$behind" ]; then
  echo "gpunode: that would be a partial upgrade, which Arch does not support; nothing was installed. What$names" \
    "need is behind:" >&2
  printf '%s\n' "$behind" | head -n 10 >&2
  echo "gpunode: remedy: upgrade the whole node (pacman -Syu), reboot it, and run again" >&2; exit 1
fi
pacman -Qq > "$folder/before"
# shellcheck disable=SC2086
new=$(brought $names)
# shellcheck disable=SC2086
if [ -n "$new" ]; then unlocked; pacman_run -U $new; fi
# What came along was not asked for by anybody.
# shellcheck disable=SC2086
along=$(pacman -Qq | grep -vxF -f "$folder/before" | grep -vxF "$(printf '%s\n' $names)" || true)
# shellcheck disable=SC2086
if [ -n "$along" ]; then pacman -D --asdeps $along > /dev/null; fi
for wanted in $expected; do
  [ "$(pacman -Q "${wanted%%=*}" 2>/dev/null)" = "${wanted%%=*} ${wanted#*=}" ] || {
    echo "gpunode: ${wanted%%=*} should be installed at ${wanted#*=} but is not" >&2; exit 1; }
done
