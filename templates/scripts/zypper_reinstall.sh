# A function for reinstall.sh, by zypper. On top of zypper.sh.

# shellcheck disable=SC2046  # They are words.
again() {
  zypp install --force --no-recommends --auto-agree-with-licenses --oldpackage \
    $(rpm -q --qf '%{NAME}=%{VERSION}-%{RELEASE}\n' "$@")
}
