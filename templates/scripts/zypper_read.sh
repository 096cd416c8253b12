# Functions: repositories are read and verified.
# signed_by_ours LABEL: zypper takes the metadata that any key of rpm's database has signed: that it was ours is seen
# here.
# read_repository LABEL OPTION... reads one of gpunode's, or ends the script.

signed_by_ours() {
  raw=/var/cache/zypp/raw/gpunode-$1/repodata/repomd.xml
  ring=$(mktemp -d); verified=0
  gpg --homedir "$ring" --batch --quiet --no-autostart --import "/etc/pki/rpm-gpg/gpunode-$1.asc" 2> /dev/null &&
    said=$(gpg --homedir "$ring" --batch --no-autostart --verify "$raw.asc" "$raw" 2>&1) || verified=$?
  rm -rf "$ring"
  [ "$verified" -eq 0 ] || {
    printf '%s\n' "${said:-}" >&2
    echo "gpunode: signed by another key than the pinned one: the repository $1; nothing was installed" >&2; return 1; }
}
# read_repository LABEL OPTION...
# shellcheck disable=SC2015
read_repository() {
  label=$1; shift
  code=0; zypper -n refresh "$@" "gpunode-$label" || code=$?
  [ "$code" -eq 0 ] || echo "gpunode: zypper exits $code" >&2
  [ "$code" -eq 0 ] && signed_by_ours "$label" || {
    echo "gpunode: the repository $label could not be read or verified; nothing was installed" >&2; exit 1; }
}
