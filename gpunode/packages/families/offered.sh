# Which versions the lists of MANAGER have (dnf, dnf5, zypper or pacman), as they are: nothing is refreshed.
# Takes NAMES, patterns of packages, and PACKAGES, an expression of them. Prints available=PACKAGE VERSION of each
# version, newest first, and fetched=SECONDS, when the lists of each repository were read.

skipping='--setopt=*.skip_if_unavailable=1'; form='%{name} %{epoch}:%{version}-%{release}'
lists() { find "$@" -printf 'fetched=%C@\n'; }
# shellcheck disable=SC2086  # Patterns of packages, of which none is a path here.
offered() {
  set -f
  case "$MANAGER" in
    dnf)
      timeout -k 5 60 dnf -q -C "$skipping" --disableplugin=versionlock repoquery --showduplicates --qf "$form" $NAMES |
        sort -r -V;;
    dnf5) timeout -k 5 60 dnf5 -q -C "$skipping" repoquery --qf "$form\\n" $NAMES | sort -r -V;;
    zypper)
      timeout -k 5 60 zypper -n --no-refresh search --details -t package $NAMES |
        awk -F '|' '{gsub(/ /, "")} $3 == "package" {print $2 " " $4}';;
    pacman) pacman -Sl | cut -d ' ' -f 2,3;;
  esac
  set +f
}
offered | grep -E "^($PACKAGES) " | sed s/^/available=/
case "$MANAGER" in
  dnf) lists /var/cache/dnf -name '*primary.xml*';;
  dnf5) lists /var/cache/libdnf5 -name '*primary.xml*';;
  zypper) lists /var/cache/zypp/raw -name '*primary.xml*';;
  pacman) lists /var/lib/pacman/sync -name '*.db';;
esac
