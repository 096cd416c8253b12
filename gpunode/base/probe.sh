# Begins every question to a node. It prints nothing and starts no program.
#
# $NL is a line end.
# printed KEY TEXT prints each line of a text as KEY=LINE, without the empty ones.
# $DRIVER_ROOT is where the driver's files stand; empty: at /.
# words TEXT sets $WORDS to a text without the blanks before and behind it, each of those within as one.

# shellcheck disable=SC2034  # Who asks reads $WORDS.

NL='
'
DRIVER_ROOT=
printed() {
  set -f; IFS=$NL
  for line in $2; do printf '%s=%s\n' "$1" "$line"; done
  unset IFS; set +f
}
words() {
  set -f
  # shellcheck disable=SC2086  # It is to be divided.
  set -- $1
  set +f; WORDS=$*
}
