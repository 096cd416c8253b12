# A function for reinstall.sh, by zypper and rpm: zypper refuses to install a locked package again. On top of zypper.sh.

# shellcheck disable=SC2046  # They are words.
again() {
  folder=$(mktemp -d)
  code=0
  zypp --pkg-cache-dir "$folder" download $(rpm -q --qf '%{NAME}=%{VERSION}-%{RELEASE}\n' "$@") &&
    find "$folder" -name '*.rpm' -exec rpm -U --replacepkgs --oldpackage {} + || code=$?
  rm -rf "$folder"
  return "$code"
}
