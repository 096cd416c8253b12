"""Shell text that every operation on zypper's packages shares: what waits for its lock, and reads repositories."""

from __future__ import annotations

from facts.families.zypper import WAITS

# 100 to 103 tell of what remains to be done (zypper(8)). Of 106 and 107 what follows says whether it matters: versions
# are compared, and the driver's module is looked at.
ZYPP = (
    WAITS
    + r"""
zypp() {
  code=0; zypper -n --no-refresh "$@" || code=$?
  case "$code" in
    0|100|101|102|103) return 0;;
    106) echo "gpunode: caution: zypper left out a repository that it cannot read" >&2; return 0;;
    107) echo "gpunode: caution: a script of a package failed; see above, and /var/log/zypp/history" >&2; return 0;;
  esac
  echo "gpunode: zypper exits $code" >&2; return "$code"
}
unlocked() {
  code=0; heard=$(zypper -n --no-refresh locks 2>&1) || code=$?
  [ "$code" -eq 7 ] || return 0
  printf '%s\n' "$heard" >&2; echo "gpunode: zypper exits $code" >&2
  echo "gpunode: another program is at work on the node's packages; nothing was changed" >&2; exit 1
}
"""
)

# zypper takes the metadata that any key of rpm's database has signed: that it was ours is seen here.
READ = r"""
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
read_repository() {
  label=$1; shift
  code=0; zypper -n refresh "$@" "gpunode-$label" || code=$?
  [ "$code" -eq 0 ] || echo "gpunode: zypper exits $code" >&2
  [ "$code" -eq 0 ] && signed_by_ours "$label" || {
    echo "gpunode: the repository $label could not be read or verified; nothing was installed" >&2; exit 1; }
}
"""

# Old metadata do for any repository but the one of ours that the packages come from.
REFRESH = (
    READ
    + r"""
refresh() {
  code=0; said=$(zypper -n refresh 2>&1) || code=$?
  if [ "$code" -eq 7 ]; then
    printf '%s\n' "$said" >&2; echo "gpunode: zypper exits 7" >&2; exit 1
  fi
  if [ -z "$1" ]; then
    [ "$code" -eq 0 ] || { printf '%s\n' "$said" | tail -n 20 >&2
      echo "gpunode: caution: not every repository could be read; what was read of it before counts" >&2; }
  elif [ "$code" -eq 0 ]; then signed_by_ours "$1" || exit 1
  else read_repository "$1"; fi
}
"""
)
