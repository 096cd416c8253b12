# A function, on top of every_version of dnf's or dnf 5's own. It takes OWN and FOREIGN, what is the driver's and what
# of that is not.
# other_versions [COMMAND...] makes of what COMMAND tells what is to be left out, so that everything comes at $upstream:
# of each repository, since what is installed and left out could not be replaced.

# shellcheck disable=SC2154  # $upstream is the caller's.
other_versions() {
  every_version "$@" | awk -v own="$OWN" -v foreign="$FOREIGN" -v upstream="$upstream" '
    $1 ~ own && $1 !~ foreign && $2 ~ /^[0-9][0-9][0-9][.][0-9]+([.][0-9]+)?$/ && $2 != upstream {
      print "*nvidia*-" $3; print "libnvsdm*-" $3; print "cuda-drivers*-" $3}' | sort -u | paste -s -d , -
}
