# A function for reinstall.sh, by rpm.

owned() {
  rpm -qa --qf '[%{=NAME}-%{=VERSION}-%{=RELEASE}.%{=ARCH} %{FILENAMES}\n]' | while read -r package path; do
    # shellcheck disable=SC2254  # It is a pattern.
    case "$path" in $1) echo "$package $path";; esac
  done
}
