# Prints the record of the last whole run as record=BASE64, and of each regular file in it, and of OWN, file=MODE
# OWNER:GROUP PATH and sha256=HEX PATH. Takes RECORD, its path, OWN, the paths that runs may write whatever the record
# says, and FOLDERS: the record's files of no other are looked at.

set --
for path in $OWN; do [ ! -f "$path" ] || [ -L "$path" ] || set -- "$@" "$path"; done
if [ -f "$RECORD" ]; then
  echo "record=$(file_base64 "$RECORD")"
  set -- "$RECORD" "$@"
  # Paths stand in lines of their own, as json.dumps indents them; to the shell they are arguments and nothing else.
  while IFS= read -r line || [ -n "$line" ]; do
    case "$line" in '    "/'*'": '*) ;; *) continue;; esac
    path=${line#'    "'}; path=${path%'": '*}
    case "$path" in *[\"\\]*|*/./*|*/../*|*/.|*/..) continue;; esac
    case " $OWN " in *" $path "*) continue;; esac
    for folder in $FOLDERS; do
      case "$path" in "$folder"*) [ ! -f "$path" ] || [ -L "$path" ] || set -- "$@" "$path";; esac
    done
  done < "$RECORD"
fi
if [ $# -gt 0 ]; then
  stat -c 'file=%a %U:%G %n' -- "$@"
  timeout 20 sha256sum -- "$@" | while IFS=' ' read -r digest path; do echo "sha256=$digest $path"; done
fi
