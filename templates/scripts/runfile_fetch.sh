# Fetches the .run file $url to $path, and refuses one without the SHA-256 $sha256, which $setting has.
# A download that was cut goes on where it ended, in the same run or the next one. Nothing takes the file's name before
# it has the SHA-256 that is expected, and nothing that has another one is kept.

# shellcheck disable=SC2154  # set by whoever sends it

umask 077
folder=${path%/*}; mkdir -p "$folder"
part=$path.$sha256.part
has() { [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$sha256" ]; }
size() { stat -c %s "$part" 2>/dev/null || echo 0; }
give_up() {
  echo "gpunode: $url could not be fetched: $1" >&2
  [ "$(size)" = 0 ] || echo "gpunode: the $(size) bytes that came are kept: the next run goes on from there" >&2
  exit 1
}
attempts=0
download() {
  tries=0; restarted=''
  while :; do
    attempts=$((attempts + 1))
    before=$(size); code=0
    status=$(curl --fail --silent --show-error --location --continue-at - --connect-timeout 15 --speed-limit 1024 \
      --speed-time 60 --output "$part" --write-out '%{http_code}' "$url" 2>"$folder/.said") || code=$?
    said=$(fetching_failed "$folder/.said" "$url")
    case "$code:$status" in
      0:*) return 0;;
      # There is no more than what came already, or the server cannot go on in the middle: from the start, once.
      22:416|33:*|36:*) [ "$before" -gt 0 ] || give_up "$said"
        if has "$part"; then return 0; fi
        rm -f "$part"; before=0
        [ -z "$restarted" ] || give_up "the server does not go on in the middle of a file, and cut it twice"
        restarted=yes;;
      22:408|22:429|22:5*) ;;
      22:*) give_up "$said";;
      23:*)
        echo "gpunode: remedy: free room on the node (\`df -h $folder\`), or mount it writable, and run again" >&2
        give_up "it could not be written to $folder, where there is no room, or no right to write";;
    esac
    # A connection that brought something is worth another try.
    if [ "$(size)" -gt "$before" ]; then tries=0; else tries=$((tries + 1)); fi
    if [ "$tries" -ge 4 ] || [ "$attempts" -ge 100 ]; then give_up "$said"; fi
    sleep 2
  done
}
if ! has "$path"; then
  rm -f "$path" "$path.sha256"
  for other in "$path".*.part; do [ "$other" = "$part" ] || rm -f "$other"; done
  begun=$(size)
  download
  if ! has "$part" && [ "$begun" -gt 0 ]; then
    # The part of an earlier run was of another file.
    rm -f "$part"; download
  fi
  if ! has "$part"; then
    got=$(sha256sum < "$part" | cut -d' ' -f1); rm -f "$part"
    echo "gpunode: $url has the SHA-256 $got, and $sha256 is asked for: it was removed, and nothing was run" >&2
    echo "gpunode: remedy: compare with what NVIDIA publishes of this file; set ${setting} if $got is right, else" \
      "correct the address" >&2
    exit 1
  fi
  sync "$part"; mv -f "$part" "$path"
fi
printf '%s\n' "$sha256" > "$path.sha256.new"; mv -f "$path.sha256.new" "$path.sha256"
