# Functions: how zypper is called.
# zypp ARGUMENT... calls it. 100 to 103 tell of what remains to be done (zypper(8)). Of 106 and 107 what follows says
# whether it matters: versions are compared, and the driver's module is looked at.
# unlocked ends the script where another program has zypper's lock.

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
