# Functions, on top of gpunode/packages/families/dnf5.sh.
# dnf_run ARGUMENT... has dnf 5 change packages: it waits for its own lock and rpm's, and passes over repositories of
# others that cannot be read. versionlock would hide what a change of the driver is about: dnf_unlocked sees no lock.

dnf_run() {
  dnf5 -q -y '--setopt=*.skip_if_unavailable=1' --setopt=install_weak_deps=False \
    --setopt=clean_requirements_on_remove=False "$@"
}
dnf_unlocked() {
  without_locks dnf5 -q -y '--setopt=*.skip_if_unavailable=1' --setopt=install_weak_deps=False \
    --setopt=clean_requirements_on_remove=False "$@"
}
