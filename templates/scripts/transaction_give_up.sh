# Behind transaction_undo.sh: what cannot be put back stays missing, and nothing waits for it any more; what was begun
# can still be looked up.

# shellcheck disable=SC2154  # set by whoever sends it

# One that was stopped may still be undone, and one that was never begun.
[ "$code" -eq 0 ] || [ "$code" -eq 143 ] || [ -z "$ran" ] || {
  mv -f "$folder/$name.json" "$folder/$name.given-up.json"
  echo "gpunode: caution: nobody asks for it any more, so that it is given up ($folder/$name.given-up.json)" >&2
  code=0
}
