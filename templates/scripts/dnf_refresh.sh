# A function.
# refresh [LABEL] reads the repositories: ours, which the packages come from, must answer; any other may be broken, and
# is named.

refresh() {
  if [ -e "/etc/yum.repos.d/gpunode-$1.repo" ]; then
    # With -q dnf leaves out why it could not fetch.
    said=$(dnf -y --disablerepo='*' --enablerepo="gpunode-$1" makecache --refresh 2>&1) || {
      printf '%s\n' "$said" >&2
      echo "gpunode: the repository $1 could not be read; nothing was installed" >&2
      exit 1; }
  fi
  said=$(dnf -y '--setopt=*.skip_if_unavailable=1' makecache --refresh 2>&1) || {
    printf '%s\n' "$said" >&2
    echo "gpunode: the repositories could not be read; nothing was installed" >&2; exit 1; }
  skipped=$(printf '%s\n' "$said" | sed -n 's/^Ignoring repositories: *//p' | sort -u | paste -s -d ' ' -)
  [ -z "$skipped" ] || {
    printf '%s\n' "$said" | grep -v '^Ignoring' | tail -n 6 >&2
    echo "gpunode: caution: dnf passes over what it cannot read: $skipped; mend it, or switch it off" \
      "(dnf config-manager --set-disabled $skipped)" >&2; }
}
