# Runs the transaction whose script comes as base64 by standard input, on top of transaction_unit.sh and STANDARD_INPUT.
# It takes $target, and $ended, the words for one that failed and left nothing to put back.

# shellcheck disable=SC2154  # set by whoever sends it

mkdir -p "$folder"
new=$folder/$name.sh.$$
# A change that began has renamed it.
trap 'rm -f "$new"' EXIT
standard_input > "$new"
sync "$new"
in_unit begun log "exec /bin/sh $new change"
# systemd-run may call it a success (as it ends itself) where the machine's shutdown stopped the unit: 143 is SIGTERM.
if [ "$code" -eq 0 ]; then
  grep -qF '"state": "done", "target": "'"$target" "$folder/$name.json" 2>/dev/null || code=143
fi
[ "$code" -eq 0 ] || grep -qF '"state": "began"' "$folder/$name.json" 2>/dev/null || echo "$ended $name" >&2
if [ "$code" -eq 143 ]; then
  echo "gpunode: cause: the unit gpunode-$name was stopped from outside: the node goes down, or somebody stopped it" >&2
  echo "gpunode: remedy: run again when the node answers; what was changed is put back, then or by now" >&2
fi
exit "$code"
