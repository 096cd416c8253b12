# Functions that rpm_install.sh needs, by zypper. On top of zypper.sh.

offered() {
  zypper -n --xmlout --no-refresh search --details --match-exact -t package "$1" | grep -v 'repository="(' |
    sed -n 's/.*<solvable .* edition="\([^"]*\)".*/\1/p' | sort -r -V | while read -r full; do
    version=${full#*:}; echo "${version%-*} $full"
  done
}
losing() {
  code=0
  said=$(zypper -n --xmlout --no-refresh install --dry-run --no-recommends --auto-agree-with-licenses --oldpackage \
    "$@" 2>&1) || code=$?
  case "$code $said" in
    0\ *'<install-summary'*|10[01236]\ *'<install-summary'*|0\ *'Nothing to do'*|106\ *'Nothing to do'*) ;;
    *) untold zypper "$said"; echo "gpunode: zypper exits $code" >&2; return 1;;
  esac
  printf '%s\n' "$said" | sed -n '/<to-remove>/,/<[/]to-remove>/s/.*<solvable type="package" name="\([^"]*\)".*/\1/p'
}
install_chosen() { zypp install --no-recommends --auto-agree-with-licenses --oldpackage "$@"; }
