"""Shell text for rpm, beneath dnf and zypper alike; what it calls and does not define is each one's own."""

from __future__ import annotations

from operations.families.removal import REFUSE_REMOVAL

EVR = r"""
evr() { rpm -q --qf '%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\n' "$@" 2>/dev/null; }
"""

# Of the driver's transaction: operations.families.family says what each function does; `of_driver` is each manager's
# own. Modules that come built per kernel may be there several times.
TRANSACTION = (
    EVR
    + r"""
verified=''
driver_packages() {
  of_driver | awk '
    $2 !~ /^kernel([0-9]+[.][0-9]+)?(-|$)/ || $2 ~ /^kernel-firmware-nvidia-gsp/ {print $2, $3, $1, "installed"}' |
    sort -u | while read -r package version want state; do
      [ -z "$verified" ] || is_whole "$package" || state=broken
      echo "$package $version $want $state"
    done
}
is_whole() { rpm -V --nodeps --noscripts --noconfig --nomtime "$1" > /dev/null 2>&1; }
saved_file() {
  for file in "$1/$2-${3#*:}".*.rpm; do
    if [ -f "$file" ] && [ "$(evr -p --nosignature "$file")" = "$3" ] && rpm -K "$file" > /dev/null 2>&1; then
      printf '%s' "$file"; return 0
    fi
  done
  return 1
}
is_installed() { [ "$(evr "${1%%=*}")" = "${1#*=}" ]; }
stated() { evr "$1" || echo absent; }
release() { :; }
keep() { :; }
forget() { :; }
# rpm lists what it has begun to unpack only when that has ended: what is put back is looked at file by file.
finish_half() { verified=yes; }
finish_first() {
  [ -n "$names" ] || return 1
  for item in $names; do rpm -q "$item" > /dev/null 2>&1 || return 1; done
  [ -z "$(driver_packages | cut -d' ' -f1 | grep -v -e -kmp- | uniq -d)" ]
}
# By rpm alone: it needs no repository, and takes whatever an interruption left. What is installed once more at the
# version that is there must not run the scripts of a removal: they come last, and take the module away again.
put_back() {
  restore_choices
  [ -z "$added" ] || rpm -e --nodeps $added
  moved=''; again=''
  while read -r package version _; do
    file=$(saved_file "$checkpoint/$saved" "$package" "$version") || continue
    there=$(evr "$package") || there=''
    case " $(echo $there) " in
      "  ") again="$again $file";;
      " $version ") is_whole "$package" || again="$again $file";;
      *" $version "*) again="$again $file"
        for other in $there; do
          [ "$other" = "$version" ] || rpm -e --nodeps "$package-${other#*:}"
        done;;
      *) moved="$moved $file";;
    esac
  done < "$checkpoint/packages"
  [ -z "$moved" ] || rpm -U --oldpackage --nodeps $moved
  [ -z "$again" ] || rpm -U --oldpackage --replacepkgs --nodeps --nopreun --nopostun $again
  # Once is enough: what still differs then, somebody else changes.
  verified=''
}
"""
)

# `offered NAME` prints VERSION EPOCH:VERSION-RELEASE of each package in the repositories, newest first, and
# `install_chosen` installs NAME=EPOCH:VERSION-RELEASE..., `exchange "GOING" ...` does so and removes in one transaction
# (dnf alone is asked for it); `losing` prints the packages that installing those, with $going gone, would
# remove, and fails by `untold` where that is not to be learned. What stands behind the
# version that was asked for must not go on with it. $manager is dnf or zypper.
INSTALL = (
    EVR
    + REFUSE_REMOVAL
    + r"""
untold() {
  printf '%s\n' "$2" >&2
  echo "gpunode: $1 does not tell what it would do, by its words above; no package was changed" >&2
}
resolve() {
  offered "$1" | while read -r version full; do
    case "$2" in
      '') echo "$full"; break;;
      *~rc*) case "$version" in "$2"|"$2"[!0-9A-Za-z]*) echo "$full"; break;; esac;;
      *) case "$version" in
           "$2"~rc*|"$2"~alpha*|"$2"~beta*) continue;;
           "$2"|"$2"[!0-9A-Za-z]*) echo "$full"; break;;
         esac;;
    esac
  done
}
chosen=''; expected=''; going=''
for wanted in "$@"; do
  case "$wanted" in *-) going="$going ${wanted%-}"; continue;; esac
  name=${wanted%%=*}; rule=''; case "$wanted" in *=*) rule=${wanted#*=};; esac
  version=$(resolve "$name" "$rule")
  if [ -z "$version" ]; then
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. Available:" >&2
    offered "$name" | cut -d' ' -f2 | head -n 20 >&2; exit 1
  fi
  chosen="$chosen $name=$version"
  expected="$expected $name=${rule:+${version#0:}}"
done
losses=$(losing $chosen) || exit 1
refuse_removal "$manager" "$*" "$going" "$losses"
if [ -z "$going" ]; then install_chosen $chosen; else exchange "$going" $chosen; fi
for wanted in $expected; do
  name=${wanted%%=*}; version=${wanted#*=}; there=$(evr "$name" || true)
  [ -n "$there" ] && [ "$there" = "${version:-$there}" ] || {
    echo "gpunode: $name should be installed at ${version:-any version} but is '${there:-absent}'" >&2; exit 1; }
done
"""
)
