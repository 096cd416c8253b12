# Installs packages: apt_install.sh NAME[=VERSION]... and NAME- for what is to go. On top of apt_get.sh, apt_refresh.sh
# and refuse_removal.sh. It takes $repository, the one of gpunode's that they come from.
# apt takes away whatever conflicts with what is asked for, and says so in a list that nobody reads.

# shellcheck disable=SC2154  # set by whoever sends it

# shellcheck disable=SC2086,SC2116
resolve() {
  apt-cache madison "$1" | while IFS='|' read -r _ version _; do
    version=$(echo $version); upstream=${version#*:}
    case "$2" in
      '') echo "$version"; break;;
      *~rc*) case "$upstream" in "$2"|"$2"[!0-9A-Za-z]*) echo "$version"; break;; esac;;
      *) case "$upstream" in
           "$2"~rc*|"$2"~alpha*|"$2"~beta*) continue;;
           "$2"|"$2"[!0-9A-Za-z]*) echo "$version"; break;;
         esac;;
    esac
  done
}
refresh "$repository"
chosen=''; expected=''; going=''
for wanted in "$@"; do
  case "$wanted" in *-) going="$going $wanted"; continue;; esac
  name=${wanted%%=*}; rule=''; case "$wanted" in *=*) rule=${wanted#*=};; esac
  version=$(resolve "$name" "$rule")
  if [ -z "$version" ]; then
    has=$(apt-cache madison "$name" | cut -d'|' -f2 | sort -u -V | paste -s -d ' ' - | tr -s ' ')
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. The repositories have:" \
      "${has:-none}" >&2
    echo "gpunode: remedy: set a version that they have; where they lack the package, look at repositories in the" \
      "settings and at \`apt-cache policy $name\` on the node" >&2
    exit 1
  fi
  if [ -n "$rule" ]; then chosen="$chosen $name=$version"; expected="$expected $name=$version"
  else chosen="$chosen $name"; expected="$expected $name="; fi
done
# shellcheck disable=SC2086
told=$(apt_get -s install --no-install-recommends --allow-downgrades $chosen $going 2>&1) || {
  printf '%s\n' "$told" >&2; exit 1; }
refuse_removal apt-get "$*" "$going" "$(printf '%s\n' "$told" | sed -n 's/^Remv \([^ :]*\).*/\1/p')"
# shellcheck disable=SC2086
apt_get install --no-install-recommends --allow-downgrades $chosen $going
for wanted in $expected; do
  name=${wanted%%=*}; version=${wanted#*=}
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$name" 2>/dev/null || true)
  case "$installed" in "installed ${version:-${installed#installed }}") ;; *)
    echo "gpunode: $name should be installed at ${version:-any version} but is '$installed'" >&2
    echo "gpunode: remedy: look at \`apt-cache policy $name\`, /etc/apt/preferences.d and \`apt-mark showhold\` on" \
      "the" \
      "node, remove what keeps that version away, and run again" >&2
    exit 1;;
  esac
done
for gone in $going; do
  ! dpkg-query -W -f '${db:Status-Status}' "${gone%-}" 2>/dev/null | grep -qx installed || {
    echo "gpunode: ${gone%-} should be gone, and apt left it installed" >&2
    echo "gpunode: remedy: remove it (\`apt-get remove ${gone%-}\` on the node names what needs it), and run again" >&2
    exit 1; }
done
