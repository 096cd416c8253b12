"""apt: repositories trusted by fingerprint, and packages at the version that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from facts.deb import AptRepository, DebPackages
from operations.failure import OperationRefused, known, node_operation
from operations.script import script_command

KEYRINGS = "/usr/share/keyrings"
SOURCES = "/etc/apt/sources.list.d"
STAMPS = "/var/lib/gpunode/apt"

# A lock held by unattended-upgrades is waited for, not failed on; packages never ask questions.
_APT = "DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confold"

_TRUST = """
temporary=$(mktemp -d); trap 'rm -rf "$temporary"' EXIT
mkdir -p "$(dirname "$keyring")" "$(dirname "$source")" "$(dirname "$stamp")"
found=$([ -f "$keyring" ] && gpg --batch --show-keys --with-colons "$keyring" 2>/dev/null |
  awk -F: '$1=="pub"{p=1} $1=="fpr"&&p{print $10; p=0}' | sort | tr '\\n' ' ' || true)
if [ "${found% }" != "$fingerprint" ]; then
  curl --fail --silent --show-error --location --retry 2 --connect-timeout 10 --max-time 120 \\
    --output "$temporary/key" "$key_url" || {
    echo "gpunode: the key $key_url could not be fetched; nothing was installed" >&2; exit 1; }
  got=$(gpg --batch --show-keys --with-colons "$temporary/key" 2>/dev/null |
    awk -F: '$1=="pub"{p=1} $1=="fpr"&&p{print $10; p=0}' | sort | tr '\\n' ' ' || true)
  if [ "${got% }" != "$fingerprint" ]; then
    echo "gpunode: the key at $key_url has the fingerprint ${got:-(none) }but $fingerprint is pinned" >&2
    echo "gpunode: refused, nothing was installed; if the publisher says so, set repositories.$name.key_fingerprint" >&2
    exit 1
  fi
  gpg --batch --yes --dearmor --output "$temporary/keyring" "$temporary/key" 2>/dev/null ||
    cp "$temporary/key" "$temporary/keyring"
  install -m 644 "$temporary/keyring" "$keyring.gpunode-new"; mv -f "$keyring.gpunode-new" "$keyring"
fi
printf '%s' "$text" > "$source.gpunode-new"; chmod 644 "$source.gpunode-new"; mv -f "$source.gpunode-new" "$source"
apt-get -q -o DPkg::Lock::Timeout=300 -o APT::Update::Error-Mode=any -o Dir::Etc::sourcelist="$source" \\
  -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 update || {
  echo "gpunode: the repository $name could not be read or verified; see apt's message above" >&2; exit 1; }
cat "$source" "$keyring" | sha256sum | cut -d' ' -f1 > "$stamp"
"""

_INSTALL = """
resolve() {
  apt-cache madison "$1" | while IFS='|' read -r _ version _; do
    version=$(echo $version); upstream=${version#*:}
    case "$2" in
      '') echo "$version"; break;;
      *) case "$upstream" in "$2"|"$2"[!0-9A-Za-z]*) echo "$version"; break;; esac;;
    esac
  done
}
apt_get update >/dev/null || {
  echo "gpunode: the package lists could not be refreshed; see apt's message above" >&2; exit 1; }
chosen=''; expected=''
for wanted in "$@"; do
  name=${wanted%%=*}; rule=''; case "$wanted" in *=*) rule=${wanted#*=};; esac
  version=$(resolve "$name" "$rule")
  if [ -z "$version" ]; then
    echo "gpunode: no version of $name matches '${rule:-any}'; nothing was installed. Available:" >&2
    apt-cache madison "$name" | cut -d'|' -f2 | sort -u | head -n 20 >&2; exit 1
  fi
  if [ -n "$rule" ]; then chosen="$chosen $name=$version"; expected="$expected $name=$version"
  else chosen="$chosen $name"; expected="$expected $name="; fi
done
apt_get install --no-install-recommends --allow-downgrades $chosen
for wanted in $expected; do
  name=${wanted%%=*}; version=${wanted#*=}
  installed=$(dpkg-query -W -f '${db:Status-Status} ${Version}' "$name" 2>/dev/null || true)
  case "$installed" in "installed ${version:-}"*) ;; *)
    echo "gpunode: $name should be installed at ${version:-any version} but is '$installed'" >&2; exit 1;;
  esac
done
"""


def source_text(uri: str, keyring: str, suite: str = "/", components: str = "") -> str:
    """Return a deb822 source for one repository that trusts one keyring alone; `suite` is `/` for a flat one."""
    lines = ["# Written by gpunode", "Types: deb", f"URIs: {uri}", f"Suites: {suite}"]
    if components:
        lines.append(f"Components: {components}")
    return "\n".join([*lines, f"Signed-By: {keyring}", ""])


@node_operation
def repository(
    label: str, uri: str, key_url: str, key_fingerprint: str, suite: str = "/", components: str = ""
) -> Iterator[Any]:
    """Trust and read a package repository.

    The key is fetched on the node and refused unless its fingerprint is the pinned one; the lists are fetched again
    when source or key is not the one that they were fetched for.

    + label: names the files, `gpunode-LABEL.sources` and `gpunode-LABEL.gpg`
    + uri, suite, components: as in sources.list; suite `/` for a flat repository
    + key_url: where the key is
    + key_fingerprint: 40 hex digits
    """
    keyring, source, stamp = (
        f"{KEYRINGS}/gpunode-{label}.gpg",
        f"{SOURCES}/gpunode-{label}.sources",
        f"{STAMPS}/{label}.refreshed",
    )
    text = source_text(uri, keyring, suite, components)
    fact = host.get_fact(AptRepository, keyring=keyring, source=source, stamp=stamp)
    present = known(fact, f"the package repository {label}")
    if (
        present.fingerprints == (key_fingerprint,)
        and present.source == text
        and present.digest is not None
        and present.digest == present.refreshed
    ):
        host.noop(f"the repository {label} is trusted and read")
        return
    yield script_command(
        _TRUST,
        name=label, keyring=keyring, source=source, stamp=stamp, text=text,
        key_url=key_url, fingerprint=key_fingerprint,
    )  # fmt: skip


@node_operation
def packages(wanted: Mapping[str, str | None]) -> Iterator[Any]:
    """Install packages at the versions asked for, in one transaction, and check that this is what came.

    + wanted: package name -> None (any version), a branch (`580`: its newest) or an upstream version
    """
    present = known(host.get_fact(DebPackages, names=sorted(wanted)), "the list of installed packages")
    missing = present.missing(wanted)
    if not missing:
        host.noop(f"installed: {', '.join(f'{name} {version}' for name, version in present.installed)}")
        return
    for name, rule in missing.items():
        if rule is not None and not rule.strip():
            raise OperationRefused(f"{name}: an empty version was asked for")
    # The whole set, not the missing part alone: apt must not move the others.
    arguments = [name if rule is None else f"{name}={rule}" for name, rule in sorted(wanted.items())]
    yield script_command(f'apt_get() {{ {_APT} "$@"; }}\n{_INSTALL}', *arguments)


__all__ = ["packages", "repository", "source_text"]
