# A function: every_version [COMMAND...] prints NAME VERSION EPOCH:VERSION-RELEASE of all packages of the driver that
# the repositories have, asked by COMMAND. No lock hides any of them from this question.

every_version() {
  "$@" dnf5 -q -C '--setopt=*.skip_if_unavailable=1' repoquery \
    --qf '%{name} %{version} %{epoch}:%{version}-%{release}\n' \
    'nvidia-*' 'libnvidia-*' 'libnvsdm*' 'kmod-nvidia-*' 'cuda-drivers*'
}
