# Functions by which rpm and dnf 5's versionlock are asked; it prints nothing.
# Takes VERSIONLOCK, versionlock's list; EVR, rpm's format of one; OWN and FOREIGN, what is the driver's and what of
# that is not; BESIDE, what is the container toolkit's, DCGM's and container runtimes': regular expressions of names;
# COMPANIONS, names of what the driver asks of the distribution.
#
# locks prints NAME=EPOCH:VERSION-RELEASE of entries that lock one version; is_locked NAME=EPOCH:VERSION-RELEASE says
# whether one of $locks is for that; of_driver prints WANT NAME VERSION of every package of the driver, and of kernels,
# where WANT is hold or install; of_all these and those. without_locks COMMAND... runs it with versionlock's list out of
# its sight: dnf 5 has no option for that but one (disable_excludes=*) that brings back what else is left out, too.

locks() {
  [ -s "$VERSIONLOCK" ] || return 0
  # An entry is a table of its own or one of a list in brackets; so are its conditions, each of which has to hold.
  awk -v quote="'" '
    BEGIN {
      string = "(\"([^\"\\\\]|\\\\.)*\"|" quote "[^" quote "]*" quote ")"
      pair = "^[A-Za-z0-9_-]+[ \t]*=[ \t]*" string; string = "^" string
    }
    function judged() {
      if (value != "") {if (of == "evr" && sign ~ /^==?$/) evr = value; else other = 1}
      of = sign = value = ""
    }
    function told() {
      if (name != "" && evr != "" && !other) locks = locks name "=" (evr ~ /:/ ? "" : "0:") evr "\n"
      name = evr = ""; other = 0
    }
    function said(key, text) {
      if (key == "name") name = text; else if (key == "key") of = text
      else if (key == "comparator") sign = text; else if (key == "value") value = text
    }
    {sub(/^[ \t]+/, "")}
    /^version[ \t]*=[ \t]*"1[.]0"/ {read = 1}
    /^packages[ \t]*=/ {list = 1}
    /^\[\[/ {judged(); if ($0 ~ /^\[\[[ \t]*packages[ \t]*\]\]/) told(); next}
    {
      for (left = $0; left != "" && left !~ /^#/; left = substr(left, length(part) + 1)) {
        part = substr(left, 1, 1)
        if (part == "{") {judged(); depth++}
        else if (part == "}") {judged(); depth--; if (list && depth == 0) told()}
        else if (match(left, pair)) {
          part = substr(left, 1, RLENGTH); key = part; sub(/[ \t]*=.*/, "", key)
          text = part; sub(/^[^=]*=[ \t]*/, "", text); said(key, substr(text, 2, length(text) - 2))
        } else if (match(left, string)) part = substr(left, 1, RLENGTH)
      }
    }
    END {judged(); told(); if (read) printf "%s", locks}' "$VERSIONLOCK"
}
is_locked() (
  set -f
  for entry in $locks; do
    # shellcheck disable=SC2254  # A name is a pattern.
    case "$1" in $entry) exit 0;; esac
  done
  exit 1
)
of_those() {
  locks=$(locks)
  rpm -qa --qf "%{NAME} $EVR %{EPOCHNUM}:%{VERSION}-%{RELEASE}\\n" |
    awk -v own="$OWN" -v foreign="$FOREIGN" -v also="$1" -v companions=" $COMPANIONS " \
      '($1 ~ own && $1 !~ foreign) || $1 ~ /^kernel([0-9]+[.][0-9]+)?(-|$)/ ||
        index(companions, " " $1 " ") || (also != "" && $1 ~ also)' | sort |
    while read -r name version full; do
      want=install; [ -z "$locks" ] || ! is_locked "$name=$full" || want=hold
      echo "$want $name $version"
    done
}
of_driver() { of_those ''; }
of_all() { of_those "$BESIDE"; }
without_locks() {
  [ -e "$VERSIONLOCK" ] || { "$@"; return; }
  # shellcheck disable=SC2016
  unshare --mount sh -c 'mount --bind /dev/null "$1" && shift && exec "$@"' sh "$VERSIONLOCK" "$@"
}
