# A function; it prints nothing but errors. $index_sources and $index_records are folders, for tests.
#
# Whoever stands between a node and its mirror can serve a state of before, rightly signed, with its known holes. apt
# (2.6) passes over an index older than the one in its lists, without a word, and takes any where its lists were cleaned
# away. NVIDIA's repositories have no Valid-Until.

# not_older LABEL: to be called when its lists were read. Refuse an index older than the last that was read of the same
# address, and take it out of apt's sight; else note its date.
not_older() {
  index_source=${index_sources:-/etc/apt/sources.list.d}/gpunode-$1.sources
  index_record=${index_records:-/var/lib/gpunode/apt}/$1.index
  [ -f "$index_source" ] || return 0
  # Of a repository's folder, each list's name in the repository, and the file in which apt has it: with an ending more
  # where Acquire::GzipIndexes keeps lists compressed, as images of containers do.
  # shellcheck disable=SC2016 # apt's own variables
  index_list=$(apt-get -o Dir::Etc::sourcelist="$index_source" -o Dir::Etc::sourceparts=- indextargets \
    --format '$(METAKEY) $(FILENAME)' 'Created-By: Packages' 2> /dev/null | head -n 1)
  index_name=$(printf %s "${index_list%% *}" | tr / _)
  index_start=${index_list#* }; index_start=${index_start%"$index_name"*}
  index_file=${index_start}InRelease
  [ -f "$index_file" ] || index_file=${index_start}Release
  [ -f "$index_file" ] || return 0
  index_date=$(sed -n 's/^Date: *//p' "$index_file" | head -n 1)
  index_now=$(date -d "$index_date" +%s 2> /dev/null) && [ -n "$index_date" ] || return 0
  index_address=$(sed -n 's/^URIs: //p' "$index_source")
  if [ -f "$index_record" ] && read -r index_before index_of index_said < "$index_record" &&
    [ "$index_of" = "$index_address" ] && [ "$index_now" -lt "$index_before" ]; then
    rm -f "$index_start"*
    echo "gpunode: refused: the index of the repository $1 ($index_address) is of $index_date, and one of $index_said" \
      "was read before. The mirror fell behind, or an old state of it is served. Nothing was installed, and apt has" \
      "no" \
      "list of it now" >&2
    echo "gpunode: remedy: have the mirror synchronized; where the older state is meant, remove $index_record on the" \
      "node; run again" >&2
    exit 1
  fi
  mkdir -p "${index_record%/*}"
  printf '%s %s %s\n' "$index_now" "$index_address" "$index_date" > "$index_record.gpunode-new"
  mv -f "$index_record.gpunode-new" "$index_record"
}
