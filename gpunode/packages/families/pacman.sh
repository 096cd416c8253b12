# Functions by which pacman is asked; it prints nothing.
# Takes OWN and FOREIGN, what is the driver's and what of that is not; BESIDE, what is the container toolkit's and
# DCGM's: regular expressions of names.
#
# of_driver prints WANT NAME VERSION of every package of the driver, and of kernels, where WANT is hold (an upgrade
# passes over it) or install; of_all these and those.

of_those() {
  patterns=$(pacman-conf IgnorePkg) || patterns=
  pacman -Q | awk -v own="$OWN" -v foreign="$FOREIGN" -v also="$1" \
    '($1 ~ own && $1 !~ foreign) || $1 ~ /^linux(-|$)/ || (also != "" && $1 ~ also)' |
    while read -r name version; do
      want=install
      set -f
      for pattern in $patterns; do
        # shellcheck disable=SC2254  # What is ignored is a pattern.
        case "$name" in $pattern) want=hold;; esac
      done
      set +f
      echo "$want $name $version"
    done
}
of_driver() { of_those ''; }
of_all() { of_those "$BESIDE"; }
