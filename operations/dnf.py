"""dnf: repositories trusted by fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.facts.families.dnf import DnfRepository
from gpunode.operations.failure import node_operation
from gpunode.operations.rpm_repository import RpmRepositories, removed, trusted


class _Repositories(RpmRepositories):
    family = "dnf"
    STAMPS = "/var/lib/gpunode/dnf"
    # dnf keeps the keys of a repository with its metadata, also those that the file has no more.
    READ = """
rm -rf /var/cache/dnf/gpunode-"$name"-* /var/cache/dnf/gpunode-"$name".solv*
dnf -q -y --disablerepo='*' --enablerepo="gpunode-$name" makecache --refresh || {
  echo "gpunode: the repository $name could not be read or verified; see dnf's message above" >&2; exit 1; }
"""
    fact = DnfRepository


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
    """Trust and read a package repository; the arguments are those of operations.rpm_repository.trusted."""
    yield from trusted(REPOSITORIES, label, uri, key_url, key_fingerprint, suite, components, packages_signed, proxies)


@node_operation
def no_repository(label: str) -> Iterator[Any]:
    """Remove a repository of ours, with its key.

    + label: as for `repository`
    """
    yield from removed(REPOSITORIES, label)


__all__ = ["no_repository", "repository"]
