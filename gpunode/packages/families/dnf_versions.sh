# A function about what a package of the driver needs: it may be had at several versions, where no module stream tells
# branches apart, and within one.
# every_version [COMMAND...] prints NAME VERSION EPOCH:VERSION-RELEASE of all that the repositories have, asked by
# COMMAND.

every_version() {
  "$@" dnf -q -C '--setopt=*.skip_if_unavailable=1' --disableplugin=versionlock repoquery --showduplicates \
    --qf '%{name} %{version} %{epoch}:%{version}-%{release}' \
    'nvidia-*' 'libnvidia-*' 'libnvsdm*' 'kmod-nvidia-*' 'cuda-drivers*'
}
