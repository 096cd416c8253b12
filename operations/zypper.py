"""zypper: repositories trusted by fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.facts.families.zypper import ZypperRepository
from gpunode.keyring import PRIMARY_KEYS
from gpunode.operations.failure import node_operation
from gpunode.operations.families.zypper_shell import READ, ZYPP
from gpunode.operations.rpm_repository import RpmRepositories, removed, trusted
from gpunode.shell_file import script_file


class _Repositories(RpmRepositories):
    family = "zypper"
    STAMPS = "/var/lib/gpunode/zypper"
    # zypper asks about a key that rpm does not have, and so refuses it. It is never told to import whatever key stands
    # beside the metadata (--gpg-auto-import-keys).
    READ = ZYPP + READ + script_file("zypper_trust")
    FORGET = PRIMARY_KEYS + script_file("zypper_forget")
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
