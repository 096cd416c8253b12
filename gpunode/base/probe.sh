# Begins every question to a node. It prints nothing and starts no program.
#
# $NL is a line end.
# printed KEY TEXT prints each line of a text as KEY=LINE, without the empty ones.
# $DRIVER_ROOT is where the driver's files stand; empty: at /.
# to_base64 NAME prints standard input in base64. file_base64 FILE prints a file, nothing of one that does not exist.
# What is larger than 1 MiB, is a named pipe, or cannot be read, is printed as `-`, with its name in base64.
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
limited_base64() {
  encoded=$(base64 -w0)
  if [ ${#encoded} -le 1398104 ]; then printf %s "$encoded"; else printf -- "-%s" "$(printf %s "$1" | base64 -w0)"; fi
}
to_base64() { head -c 1048579 | limited_base64 "$1"; }
file_base64() {
  [ ! -e "$1" ] || { { [ ! -p "$1" ] && head -c 1048579 -- "$1"; } || head -c 1048579 /dev/zero; } | limited_base64 "$1"
}
words() {
  set -f
  # shellcheck disable=SC2086  # It is to be divided.
  set -- $1
  set +f; WORDS=$*
}
