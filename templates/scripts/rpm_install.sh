# Installs packages, beneath dnf and zypper: rpm_install.sh NAME[=VERSION]... and NAME- for what is to go. It takes
# $manager, dnf or zypper, and its functions: `offered NAME` prints VERSION EPOCH:VERSION-RELEASE of each package in the
# repositories, newest first; `install_chosen` installs NAME=EPOCH:VERSION-RELEASE..., `exchange "GOING" ...` does so
# and removes in one transaction (dnf alone is asked for it); `losing` prints the packages that installing those, with
# $going gone, would remove, and fails by `untold` where that is not to be learned.
# What stands behind the version that was asked for must not go on with it.

# shellcheck disable=SC2154  # set by whoever sends it

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
    has=$(offered "$name" | cut -d' ' -f2 | paste -s -d ' ' -)
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. The repositories have:" \
      "${has:-none}" >&2
    echo "gpunode: remedy: set a version that they have; where they lack the package, look at repositories in the" \
      "settings and at \`$manager repolist\` on the node" >&2
    exit 1
  fi
  chosen="$chosen $name=$version"
  expected="$expected $name=${rule:+${version#0:}}"
done
# shellcheck disable=SC2086
losses=$(losing $chosen) || exit 1
refuse_removal "$manager" "$*" "$going" "$losses"
# shellcheck disable=SC2086
if [ -z "$going" ]; then install_chosen $chosen; else exchange "$going" $chosen; fi
for wanted in $expected; do
  name=${wanted%%=*}; version=${wanted#*=}; there=$(evr "$name" || true)
  [ -n "$there" ] && [ "$there" = "${version:-$there}" ] || {
    echo "gpunode: $name should be installed at ${version:-any version} but is '${there:-absent}'" >&2
    echo "gpunode: remedy: look for a lock or an exclude that keeps that version away (\`$manager\` on the node)," \
      "and run" \
      "again" >&2
    exit 1; }
done
