# Undoes a change that was interrupted, on top of transaction_unit.sh; leaves $code.
# Its journal is looked at again within the unit: another run may have undone it by then, and ended a change of its own.

# shellcheck disable=SC2154  # set by whoever sends it

began='"state": "began"'
in_unit undone undo.log "grep -qF '$began' $folder/$name.json || exit 0; exec /bin/sh $folder/$name.sh undo"
if [ "$code" -eq 0 ] && grep -qF "$began" "$folder/$name.json"; then
  echo "gpunode: cause: the unit gpunode-$name was stopped before all was put back" >&2
  echo "gpunode: remedy: run again when the node answers" >&2; code=143
fi
