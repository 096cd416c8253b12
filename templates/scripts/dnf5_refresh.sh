# A function.
# refresh [LABEL] reads the repositories: ours, which the packages come from, must answer; any other may be broken, and
# is named. dnf 5 names the one at which it gives up: it is asked again without that.

refresh() {
  if [ -e "/etc/yum.repos.d/gpunode-$1.repo" ]; then
    dnf5 -q -y --disablerepo='*' --enablerepo="gpunode-$1" makecache --refresh || {
      echo "gpunode: the repository $1 could not be read; nothing was installed" >&2
      exit 1; }
  fi
  skipped=''; told=''
  until said=$(dnf5 -y ${skipped:+"--disablerepo=$skipped"} '--setopt=*.skip_if_unavailable=0' makecache --refresh 2>&1)
  do
    broken=$(printf '%s\n' "$said" | sed -n 's/.* for repository "\([A-Za-z0-9_.:-]*\)".*/\1/p' | tail -n 1)
    case ",$skipped," in *",$broken,"*) broken='';; esac
    [ -n "$broken" ] || {
      printf '%s\n' "$said" >&2
      echo "gpunode: the repositories could not be read; nothing was installed" >&2; exit 1; }
    skipped=$skipped${skipped:+,}$broken
    told=$(printf '%s\n' "$said" | grep -e "for repository \"$broken\"" | tail -n 1)
    printf '%s\n' "$told" >&2
  done
  [ -z "$skipped" ] || {
    echo "gpunode: caution: dnf passes over what it cannot read: $skipped; mend it, or switch it off" \
      "(dnf config-manager setopt REPOSITORY.enabled=0)" >&2; }
}
