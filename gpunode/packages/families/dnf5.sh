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
  awk '
    function told() {if (read && name != "" && evr != "") print name "=" (evr ~ /:/ ? "" : "0:") evr; name = evr = ""}
    {sub(/^[ \t]+/, "")}
    /^version[ \t]*=[ \t]*"1[.]0"/ {read = 1}
    /^\[\[[ \t]*packages[ \t]*\]\]/ {told()}
    /^\[\[/ {of = sign = ""}
    /^(name|key|comparator|value)[ \t]*=[ \t]*"/ {
      what = $0; sub(/[ \t]*=.*/, "", what); text = $0; sub(/^[^"]*"/, "", text); sub(/".*/, "", text)
      if (what == "name") name = text; else if (what == "key") of = text; else if (what == "comparator") sign = text
      else if (of == "evr" && sign ~ /^==?$/) evr = text
      else name = ""}
    END {told()}' "$VERSIONLOCK"
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
