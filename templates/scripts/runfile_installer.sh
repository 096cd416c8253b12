# Functions: NVIDIA's installers. An installer's own words go into our error: it says on the terminal little more than
# where its log is. They take $checkpoint and `advise`, which puts what a log means into $advice.
# genuine FILE says whether it is still as it was fetched; run_installer LOG FILE [ARGUMENT ...] runs it, and blameless
# says whether the last one cannot be blamed: a disk that is full, or somebody who stopped it (128 and more).
# check_runfile ends the script where $runfile has not the SHA-256 $sha256.

# shellcheck disable=SC2154  # set by whoever sends it

# Its SHA-256 is still the one with which it came.
genuine() {
  [ -f "$1" ] && [ "$(sha256sum < "$1" | cut -d' ' -f1)" = "$(head -n 1 "$1.sha256" 2>/dev/null)" ]
}
# run_installer LOG FILE [ARGUMENT ...]
run_installer() {
  log=$1; file=$2; shift 2
  : > "$checkpoint/started"; code=0
  # What it makes is for everybody to read, unlike what the transaction keeps.
  (umask 022; sh "$file" "$@") > "$checkpoint/said" 2>&1 < /dev/null || code=$?
  [ "$code" -ne 0 ] || return 0
  # A log that is older is of another run.
  if [ ! -e "$log" ] || [ "$checkpoint/started" -nt "$log" ]; then log=$checkpoint/said; fi
  echo "gpunode: ${file##*/} exits $code; the end of $log:" >&2
  tail -n 15 "$log" >&2
  advice=
  advise "$(grep -iE 'error|fail|fatal|no space' "$log" | tail -n 40)"
  echo "gpunode: remedy: ${advice:-see all of $log on the node, correct what it names, and run again}" >&2
  return "$code"
}
# Says whether the last one cannot be blamed: a disk or memory that is full, or a signal that ended it (128 and more).
blameless() {
  case "$code:$(tail -n 40 "$log")" in
    *'No space left on device'*|*'annot allocate memory'*|*'Killed'*) return 0;;
    [0-9]:*|[0-9][0-9]:*|1[01][0-9]:*|12[0-7]:*) return 1;;
  esac
}

check_runfile() {
  genuine "$runfile" && [ "$(head -n 1 "$runfile.sha256")" = "$sha256" ] || {
    rm -f "$runfile" "$runfile.sha256"
    echo "gpunode: $runfile had not the SHA-256 $sha256: it was removed, and nothing was run" >&2
    echo "gpunode: remedy: run again, which fetches it" >&2
    exit 1; }
}
