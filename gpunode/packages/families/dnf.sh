# Functions by which rpm and dnf's versionlock are asked; it prints nothing.
# Takes LOCKLIST, versionlock's list; EVR, rpm's format of one; OWN and FOREIGN, what is the driver's and what of that
# is not; BESIDE, what is the container toolkit's, DCGM's and container runtimes': regular expressions of names;
# COMPANIONS, names of what the driver asks of the distribution.
#
# locking says whether the node has the plugin, and it is switched on; lock_of NEVRA whether an entry of its list is for
# that; of_driver prints WANT NAME VERSION of every package of the driver, and of kernels, where WANT is hold or
# install; of_all these and those.

locking() {
  for plugin in /usr/lib/python3*/*-packages/dnf-plugins/versionlock.py; do
    [ -f "$plugin" ] && grep -qiE '^enabled *= *(1|true|yes|on)' /etc/dnf/plugins/versionlock.conf && return 0
  done
  return 1
}
lock_of() {
  while read -r entry; do
    case "$entry" in ''|'#'*) continue;; esac
    # shellcheck disable=SC2254  # An entry is a pattern.
    case "$1" in $entry) return 0;; esac
  done < "$LOCKLIST"
  return 1
}
of_those() {
  locks=no; locking && [ -f "$LOCKLIST" ] && locks=yes
  rpm -qa --qf "%{NAME} $EVR %{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.%{ARCH}\\n" |
    awk -v own="$OWN" -v foreign="$FOREIGN" -v also="$1" -v companions=" $COMPANIONS " \
      '($1 ~ own && $1 !~ foreign) || $1 ~ /^kernel([0-9]+[.][0-9]+)?(-|$)/ ||
        index(companions, " " $1 " ") || (also != "" && $1 ~ also)' | sort |
    while read -r name version nevra; do
      want=install; [ "$locks" = yes ] && lock_of "$nevra" && want=hold
      echo "$want $name $version"
    done
}
of_driver() { of_those ''; }
of_all() { of_those "$BESIDE"; }
