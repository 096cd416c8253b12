# Makes $folder, and $only: options by which apt sees the sources in $SOURCES (deb822) and no others; none where that is
# empty.

folder=$(mktemp -d) || exit 0; trap 'rm -rf "$folder"' EXIT; trap 'exit 1' HUP INT TERM PIPE
only=
if [ -n "$SOURCES" ]; then
  printf '%s\n' "$SOURCES" > "$folder/archive.sources"
  only="-o Dir::Etc::sourcelist=$folder/archive.sources -o Dir::Etc::sourceparts=-"
  only="$only -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache="
fi
