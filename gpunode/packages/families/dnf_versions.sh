# Functions about what a package of the driver needs: it may be had at several versions, where no module stream tells
# branches apart, and within one. They take OWN and FOREIGN, what is the driver's and what of that is not.
# every_version [COMMAND...] prints NAME VERSION EPOCH:VERSION-RELEASE of all that the repositories have, asked by
# COMMAND.
# other_versions [COMMAND...] makes of it what dnf is to leave out, so that everything comes at $upstream: of each
# repository, since what is installed and left out could not be replaced.

every_version() {
  "$@" dnf -q -C '--setopt=*.skip_if_unavailable=1' --disableplugin=versionlock repoquery --showduplicates \
    --qf '%{name} %{version} %{epoch}:%{version}-%{release}' \
    'nvidia-*' 'libnvidia-*' 'libnvsdm*' 'kmod-nvidia-*' 'cuda-drivers*'
}
# shellcheck disable=SC2154  # $upstream is the caller's.
other_versions() {
  every_version "$@" | awk -v own="$OWN" -v foreign="$FOREIGN" -v upstream="$upstream" '
    $1 ~ own && $1 !~ foreign && $2 ~ /^[0-9][0-9][0-9][.][0-9]+([.][0-9]+)?$/ && $2 != upstream {
      print "*nvidia*-" $3; print "libnvsdm*-" $3; print "cuda-drivers*-" $3}' | sort -u | paste -s -d , -
}
