# Ends an interrupted change of packages, by dnf5_run.sh: of what is there in two versions the older one goes, and the
# newer one comes once more. Before 5.4 dnf 5 has no command for that: rpm forgets the older one, whose scripts would
# take away what the newer one has brought. What dnf only ever installs (kernels, their modules, what installonlypkgs of
# dnf.conf names) is to be there several times: dnf knows it by what it provides, whatever it is called.

install_only() { dnf5 --dump-main-config 2>/dev/null | sed -n 's/^installonlypkgs = //p' | tr ',\n' '  '; }
doubled() {
  rpm -qa --qf '%{NAME} %{ARCH} %{EPOCHNUM}:%{VERSION}-%{RELEASE}[ %{PROVIDENAME}]\n' | sort -k1,2 -k3,3V |
    awk -v only=" $(install_only) " '
      $1 ~ /^(kernel([0-9]+[.][0-9]+)?(-|$)|gpg-pubkey$)/ {next}
      {for (at = 4; at <= NF; at++)
        if ($at ~ /^(installonlypkg|multiversion)[(]/ || index(only, " " $at " ")) next}
      $1 == name && $2 == arch {print name, arch, version}
      {name = $1; arch = $2; version = $3}'
}
if dnf5 remove --help 2>&1 | grep -q -e '--duplicates'; then
  dnf_unlocked remove --duplicates && done=yes || done=
else
  done=yes; again=''
  # shellcheck disable=SC2046  # Three words a line.
  set -- $(doubled)
  while [ "$#" -ge 3 ]; do
    rpm -e --nodeps --noscripts --notriggers "$1-${3#*:}.$2" || done=
    again="$again $1"; shift 3
  done
  # shellcheck disable=SC2086
  [ -z "$again" ] || dnf_unlocked reinstall $again || done=
fi
[ -n "$done" ] || {
  echo "gpunode: a change of packages was interrupted, and what it began cannot be finished" >&2
  echo "gpunode: remedy: finish it by hand (\`dnf check\` on the node names what is broken, \`dnf distro-sync\`" \
    "corrects" \
    "most of it), and run again" >&2
  exit 1; }
