# Functions; they print nothing but errors. Where a file is written that is not gpunode's own, and whose it stays.
#
# target_of FILE prints the file that a link leads to, or FILE itself: a link is followed, and stays a link.
# roots_alone FILE refuses a file in a folder that others than root may write, at any depth: whoever may write there
# puts another file in its place, and root runs by that. It refuses, too, what is no folder and stands in one's place.
# as_read FILE READ refuses a file that is no more what was read: READ is its SHA-256, `none` where it was absent or
# empty, or `unread`. file_digest FILE prints the first two.
# as_before NEW FILE gives NEW mode and owner of FILE, without the right of all to write it; where there is no FILE, NEW
# is for all to read.

# A file's folders need not be there yet, those of a link's target must: who missed them would write anywhere.
target_of() { { [ ! -L "$1" ] || readlink -f -- "$1" > /dev/null; } && readlink -m -- "$1"; }
roots_alone() (
  folder=${1%/*}
  while :; do
    # What is not there is root's to make.
    if [ ! -e "${folder:-/}" ] && [ ! -L "$folder" ]; then folder=${folder%/*}; continue; fi
    said=$(stat -L -c '%u %g %A' "${folder:-/}") || exit 1
    case "$said" in
      *\ d?????????*) ;;
      *)
        echo "gpunode: cause: ${folder:-/} of $1 is no folder" >&2
        echo "gpunode: remedy: move it away, and run again; nothing was changed" >&2
        exit 1;;
    esac
    case "$said" in
      *\ d???????w?) said=;;
      '0 0 '*) ;;
      *\ d????w????) said=;;
      '0 '*) ;;
      *) said=;;
    esac
    if [ -z "$said" ]; then
      echo "gpunode: cause: others than root may write the folder ${folder:-/} of $1: they decide what root runs by" >&2
      echo "gpunode: remedy: \`chown root:root ${folder:-/}; chmod go-w ${folder:-/}\` on the node, and run again;" \
        "nothing was changed" >&2
      exit 1
    fi
    [ -n "$folder" ] || exit 0
    folder=${folder%/*}
  done
)
# A file that is not there says what an empty one says.
file_digest() { if [ -s "$1" ]; then sha256sum < "$1" | cut -d ' ' -f 1; else echo none; fi; }
as_read() {
  [ "$2" != unread ] && [ "$(file_digest "$1")" != "$2" ] || return 0
  echo "gpunode: cause: somebody changed $1 between the reading and the change: it is not what was read" >&2
  echo "gpunode: remedy: run again; nothing was changed" >&2
  exit 1
}
as_before() {
  if [ ! -e "$2" ]; then chmod 644 "$1"; return; fi
  # Not for all to write for a moment either: who opens it then may write it for ever.
  mode=$(stat -L -c %a "$2") && chown --reference="$2" "$1" && chmod "$(printf %o $((0$mode & 07775)))" "$1"
}
