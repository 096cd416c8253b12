# Prints folder=FOLDER for each of FOLDERS that is there, and as many lines of df -Pk, df=LINE, in the same order.

told() {
  if table=$(df -Pk "$@"); then
    for folder in "$@"; do echo "folder=$folder"; done
    printed df "${table#*"$NL"}"
  else return 1; fi
}
set --
for folder in $FOLDERS; do [ ! -e "$folder" ] || set -- "$@" "$folder"; done
# One file system that does not answer leaves the others.
[ "$#" -eq 0 ] || told "$@" || for folder in "$@"; do told "$folder"; done
