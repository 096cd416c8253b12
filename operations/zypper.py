"""zypper: repositories trusted by fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from facts.families.zypper import ZypperRepository
from gpunode.keyring import PRIMARY_KEYS
from operations.failure import node_operation
from operations.families.zypper_shell import READ, ZYPP
from operations.rpm_repository import RpmRepositories, removed, trusted


class _Repositories(RpmRepositories):
    family = "zypper"
    STAMPS = "/var/lib/gpunode/zypper"
    # zypper asks about a key that rpm does not have, and so refuses it. It is never told to import whatever key stands
    # beside the metadata (--gpg-auto-import-keys).
    READ = (
        ZYPP
        + READ
        + r"""
id=$(printf '%s' "$fingerprint" | tail -c 8 | tr A-F a-f)
rpm -q gpg-pubkey --qf '%{VERSION}\n' | grep -qE "$id\$" || {
  rpm --import "$key"; mkdir -p /var/lib/gpunode/zypper; echo "$id" > "/var/lib/gpunode/zypper/$name.imported"; }
rm -rf "/var/cache/zypp/raw/gpunode-$name" "/var/cache/zypp/solv/gpunode-$name"
read_repository "$name" --force
"""
    )
    # A key that was in rpm's database before gpunode stays there, and one that another repository of ours needs.
    FORGET = (
        PRIMARY_KEYS
        + r"""
for kept in raw solv packages; do rm -rf "/var/cache/zypp/$kept/gpunode-$name"; done
imported=/var/lib/gpunode/zypper/$name.imported
if [ -f "$imported" ]; then
  id=$(cat "$imported"); rm -f "$imported"; heir=''
  for other in /etc/pki/rpm-gpg/gpunode-*.asc; do
    label=${other##*/gpunode-}; label=${label%.asc}
    [ "$label" != "$name" ] && [ -f "/etc/zypp/repos.d/gpunode-$label.repo" ] &&
      primary_keys "$other" | tr A-F a-f | grep -q "$id\$" && heir=$label
  done
  if [ -n "$heir" ]; then echo "$id" > "/var/lib/gpunode/zypper/$heir.imported"
  else
    rpm -q gpg-pubkey --qf '%{NAME}-%{VERSION}-%{RELEASE}\n' | grep -E -- "$id-[0-9a-f]+\$" | xargs -r rpm -e
  fi
fi
"""
    )
    fact = ZypperRepository


REPOSITORIES = _Repositories()


@node_operation
def repository(
    label: str,
    uri: str,
    key_url: str,
    key_fingerprint: str,
    suite: str = "/",
    components: str = "",
    packages_signed: bool = True,
    proxies: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Trust and read a package repository; the arguments are those of operations.rpm_repository.trusted.

    rpm's database, and so every repository of the node's, trusts the key as well: zypper knows no narrower place.
    """
    yield from trusted(REPOSITORIES, label, uri, key_url, key_fingerprint, suite, components, packages_signed, proxies)


@node_operation
def no_repository(label: str) -> Iterator[Any]:
    """Remove a repository of ours, with its key.

    + label: as for `repository`
    """
    yield from removed(REPOSITORIES, label)


__all__ = ["no_repository", "repository"]
