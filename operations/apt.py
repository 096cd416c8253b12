"""apt: repositories trusted by fingerprint, and packages at the version that was asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from facts.deb import AptRepository, DebPackages
from facts.file import File
from gpunode import apt_trust, tables
from gpunode.keyring import PERMISSIONS, PRIMARY_KEYS
from operations.apt_shell import APT_GET, FINISH, READ_LISTS, REFRESH
from operations.apt_trust import commands
from operations.explained import explained_command
from operations.failure import OperationRefused, known, node_operation
from operations.script import script_command

KEYRINGS = "/usr/share/keyrings"
SOURCES = "/etc/apt/sources.list.d"
STAMPS = "/var/lib/gpunode/apt"

_TRUST = """
temporary=$(mktemp -d); trap 'rm -rf "$temporary"' EXIT
mkdir -p "$(dirname "$keyring")" "$(dirname "$source")" "$(dirname "$stamp")"
keys_of() { primary_keys "$1" | sort | paste -s -d ' ' -; }
# Judged and written as a copy: who may write the keyring may write it between the two.
if [ -f "$keyring" ]; then cp "$keyring" "$temporary/keyring"; fi
if [ "$(keys_of "$temporary/keyring")" != "$fingerprint" ]; then
  curl --fail --silent --show-error --location --retry 2 --connect-timeout 10 --max-time 120 \\
    --output "$temporary/key" "$key_url" || {
    echo "gpunode: the key $key_url could not be fetched; nothing was installed" >&2; exit 1; }
  got=$(keys_of "$temporary/key")
  if [ "$got" != "$fingerprint" ]; then
    echo "gpunode: the key at $key_url has the fingerprint ${got:-(none)} but $fingerprint is pinned" >&2
    echo "gpunode: refused, nothing was installed; if the publisher says so, set repositories.$name.key_fingerprint" >&2
    exit 1
  fi
  gpg --batch --yes --dearmor --output "$temporary/keyring" "$temporary/key" 2>/dev/null ||
    cp "$temporary/key" "$temporary/keyring"
fi
install -m 644 -o root -g root "$temporary/keyring" "$keyring.gpunode-new"
mv -f -T "$keyring.gpunode-new" "$keyring"
printf '%s' "$text" > "$source.gpunode-new"; chmod 644 "$source.gpunode-new"; mv -f "$source.gpunode-new" "$source"
read_lists apt-get -q -o APT::Update::Error-Mode=any -o Dir::Etc::sourcelist="$source" \\
  -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 || {
  echo "gpunode: the repository $name could not be read or verified; nothing was installed" >&2; exit 1; }
cat "$source" "$keyring" | sha256sum | cut -d' ' -f1 > "$stamp"
"""

_INSTALL = """
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
  case "$installed" in "installed ${version:-${installed#installed }}") ;; *)
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


def _paths(label: str) -> tuple[str, str, str]:
    """Return keyring, source and stamp of a repository."""
    return (
        f"{KEYRINGS}/gpunode-{label}.gpg",
        f"{SOURCES}/gpunode-{label}.sources",
        f"{STAMPS}/{label}.refreshed",
    )


@node_operation
def repository(
    label: str,
    uri: str,
    key_url: str,
    key_fingerprint: str,
    suite: str = "/",
    components: str = "",
    proxies: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Trust and read a package repository.

    The key is fetched on the node and refused unless its fingerprint is the pinned one; the keyring is root's alone to
    write. The lists are fetched again when source or key is not the one that they were fetched for. Other entries for
    the same repository and retired keys that are trusted for every repository are put out of apt's sight
    (.gpunode-disabled), once ours is trusted.

    + label: names the files, `gpunode-LABEL.sources` and `gpunode-LABEL.gpg`
    + uri, suite, components: as in sources.list; suite `/` for a flat repository
    + key_url: where the key is
    + key_fingerprint: 40 hex digits
    + proxies: http_proxy, https_proxy and no_proxy for the download of the key
    """
    keyring, source, stamp = _paths(label)
    text = source_text(uri, keyring, suite, components)
    retired = tables.drivers().retired_key_ids
    fact = host.get_fact(
        AptRepository, keyring=keyring, source=source, stamp=stamp, uri=uri, distrusted=[*retired, key_fingerprint]
    )
    present = known(fact, f"the package repository {label}")
    try:
        strays = apt_trust.plan(uri, suite, present.architecture, present.others, present.trusted, retired)
    except ValueError as error:
        raise OperationRefused(f"the package repository {label}: {error}") from error
    for path in apt_trust.world_trusted(key_fingerprint, present.trusted):
        host.log(f"caution: {path} lets the key of {label} sign every repository; gpunode needs it there no more")
    for step in strays:
        host.log(f"{step.path}: {step.reason}; to be disabled")
    good = (
        present.fingerprints == (key_fingerprint,)
        and present.permissions == PERMISSIONS
        and present.source == text
        and present.digest is not None
        and present.digest == present.refreshed
    )
    if good and not strays:
        host.noop(f"the repository {label} is trusted and read")
        return
    if not good:
        yield explained_command(
            script_command(
                PRIMARY_KEYS + APT_GET + READ_LISTS + _TRUST,
                name=label, keyring=keyring, source=source, stamp=stamp, text=text,
                key_url=key_url, fingerprint=key_fingerprint, **(proxies or {}),
            )
        )  # fmt: skip
    yield from commands(strays)


@node_operation
def no_repository(label: str) -> Iterator[Any]:
    """Remove a repository of ours, with its key; its lists go with apt's next refresh.

    + label: as for `repository`
    """
    paths = _paths(label)
    there = [path for path in paths if known(host.get_fact(File, path=path), path).sha256 is not None]
    if not there:
        host.noop(f"the repository {label} is not trusted by gpunode")
        return
    yield script_command('rm -f "$@"', *paths)


@node_operation
def packages(wanted: Mapping[str, str | None], one_version: bool = False, repository: str = "") -> Iterator[Any]:
    """Install packages at the versions asked for, in one transaction, and check that this is what came.

    + wanted: package name -> None (any version), a branch (`580`: its newest) or an upstream version
    + one_version: the packages belong together: where the installed ones differ, all get the newest of their versions
    + repository: label of the repository that they come from, whose list must be refreshed; empty: none of ours
    """
    present = known(host.get_fact(DebPackages, names=sorted(wanted)), "the list of installed packages")
    if present.interrupted:
        yield explained_command(script_command(f"{APT_GET}{FINISH}"))
        present = known(host.get_fact(DebPackages, names=sorted(wanted)), "the list of installed packages")
    if one_version:
        wanted = present.together(wanted)
    missing = present.missing(wanted)
    if not missing:
        host.noop(f"installed: {', '.join(f'{name} {version}' for name, version in present.installed)}")
        return
    for name, rule in missing.items():
        if rule is not None and not rule.strip():
            raise OperationRefused(f"{name}: an empty version was asked for")
    # All that have a version, not the missing ones alone: apt must not move the others. What is there in any version
    # stays as it is.
    arguments = [
        name if rule is None else f"{name}={rule.replace('-rc.', '~rc.')}"
        for name, rule in sorted(wanted.items())
        if name in missing or rule is not None
    ]
    yield explained_command(
        script_command(f"{APT_GET}{READ_LISTS}{REFRESH}{_INSTALL}", *arguments, repository=repository)
    )


__all__ = ["no_repository", "packages", "repository", "source_text"]
