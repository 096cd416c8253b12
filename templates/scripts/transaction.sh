# The mechanism of a transaction: what begins it, proves it, ends it or undoes it; arguments: change, or undo [REASON].
# It stands behind the transaction's own functions: save, change, restore, afterwards. It takes $folder, $name, $target.
# The journal is written beside itself, flushed and renamed: it is never half a journal. `reject` writes what a settled
# target needs to be blamed for its failure: where not even that can be written, it was the disk. `undo REASON` blames
# the target for a fault that showed after the transaction had ended. `restore` calls `not_to_blame` where what was
# there before does not work any more either: the cause lies elsewhere, and the target may be tried again.
# What an earlier change saved, and its script, may still be needed (operations/driver.py): they make room only for a
# change that begins, in three renames, not for one that refuses to.

# shellcheck disable=SC2154  # set by whoever sends it

umask 077
checkpoint=$folder/$name; journal=$folder/$name.json
note() {
  printf '{"schema": 1, "state": "%s", "target": "%s", "reason": "%s", "version": "%s"}\n' "$1" "$target" "${2:-}" \
    "${upstream:-}" > "$journal.new" &&
    sync "$journal.new"
}
record() { note "$@" && mv -f "$journal.new" "$journal"; }
reject() {
  echo "gpunode: $1" >&2
  [ -z "${2:-}" ] || echo "gpunode: remedy: $2" >&2
  if head -c 65536 /dev/zero > "$folder/.room" 2>/dev/null; then
    rejected=$(printf '%s' "$1" | tr '\n' ' ' | tr -cd 'A-Za-z0-9 .,:;_/()-')
  else echo "gpunode: nothing can be written to $folder: the disk is to blame, not what was asked" >&2; fi
  rm -f "$folder/.room"; exit 1
}
not_to_blame() {
  : > "$checkpoint/outside"
  echo "gpunode: it does not work as before either: the cause lies elsewhere, and the next run tries again" >&2
}
undo() {
  echo "gpunode: the transaction $name did not succeed; putting back what was there before" >&2
  if (set +e; restore); then
    if [ -n "$rejected" ] && [ ! -e "$checkpoint/outside" ]; then
      record failed "$rejected"
      echo "gpunode: remedy: run it with \`gpunode apply --retry\` (pyinfra: --data gpunode_retry=1): without that it" \
        "is not tried again until the settings change" >&2
    else record restored; fi
  else echo "gpunode: it could NOT be put back; the next run tries again" >&2; return 1; fi
}
ended() { code=$?; trap - EXIT; trap '' TERM INT HUP; if [ "$code" -ne 0 ]; then set +e; undo; fi; exit "$code"; }
# `undo REASON` blames the target for a fault that showed after the transaction had ended.
rejected=${2:-}
if [ -e "$checkpoint.before" ] && [ -e "$journal.new" ]; then
  recover_checkpoint "$folder" "$name"
  # The script came back, too.
  [ "$1" != undo ] || exec sh "$folder/$name.sh" "$@"
fi
case "$1" in
  undo) rm -rf "$checkpoint.before"; undo; exit;;
esac
rm -rf "$checkpoint.new" "$checkpoint.before"; mkdir -p "$checkpoint.new"
trap 'rm -rf "$folder/$name.new"' EXIT
checkpoint=$folder/$name.new
save
checkpoint=$folder/$name
note began
sync -f "$folder"
stopped=''
trap 'stopped=yes' TERM INT HUP
if [ -e "$checkpoint" ]; then
  # Its script knows how to put it back, and gives its name away next.
  rm -f "$checkpoint/.script"
  [ ! -e "$folder/$name.sh" ] || ln "$folder/$name.sh" "$checkpoint/.script"
  mv -T "$checkpoint" "$checkpoint.before"
fi
mv -T "$checkpoint.new" "$checkpoint"
case "$0" in "$folder/$name.sh."*) mv -f "$0" "$folder/$name.sh";; esac
# The record of a change that failed is kept: a run tries its target again, or another one.
! grep -qF '"state": "failed"' "$journal" 2>/dev/null || ln -f "$journal" "$folder/$name.given-up.json"
mv -f "$journal.new" "$journal"
# /var may be another file system than what is changed: without this a power cut could leave the change and no journal.
sync -f "$folder"
trap ended EXIT
trap 'exit 143' TERM INT HUP
[ -z "$stopped" ] || exit 143
rm -rf "$checkpoint.before" "$folder/$name.sh."*
change
sync -f "$folder"
# shellcheck disable=SC1010
record done
trap - EXIT TERM INT HUP
(set +e; afterwards) || true
