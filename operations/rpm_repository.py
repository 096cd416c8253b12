"""Repositories in .repo files, dnf's and zypper's: trusted by fingerprint, read, and removed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.facts.families.rpm import RpmRepository
from gpunode.facts.file import File
from gpunode.families.rpm import second_entries
from gpunode.keyring import PERMISSIONS
from gpunode.operations.apt_trust import commands
from gpunode.operations.explained import explained_command
from gpunode.operations.failure import OperationRefused, known
from gpunode.operations.own_files import keeps
from gpunode.operations.pinned_key import PINNED_KEY
from gpunode.operations.script import script_command
from gpunode.repositories import PackageRepository, key_path, source_path
from gpunode.shell_file import script_file


class RpmRepositories:
    """Say how a package manager has its repositories: one subclass each.

    STAMPS is a folder. Shell text: READ makes the manager read the repository $name by the key $key
    anew, and fails where it cannot; FORGET takes away what it keeps of $name beside those files.
    """

    family = ""
    STAMPS = ""
    READ = ""
    FORGET = ":"
    fact: type[RpmRepository]

    def paths(self, label: str) -> tuple[str, str, str]:
        """Return key, .repo file and stamp of a repository."""
        return key_path(self.family, label), source_path(self.family, label), f"{self.STAMPS}/{label}.refreshed"


_KEY = script_file("rpm_trust")
_STAMP = """
cat "$source" "$key" | sha256sum | cut -d' ' -f1 > "$stamp"
"""


def trusted(
    manager: RpmRepositories,
    label: str,
    uri: str,
    key_url: str,
    key_fingerprint: str,
    suite: str,
    components: str,
    packages_signed: bool,
    proxies: Mapping[str, str] | None,
) -> Iterator[Any]:
    """Trust and read a package repository.

    The key is fetched on the node and refused unless its fingerprint is the pinned one; metadata must be signed by it,
    and each package, where the publisher signs them. Other enabled entries for the same repository are switched off.

    + label: names the files, `gpunode-LABEL.repo` and `gpunode-LABEL.asc`
    + uri: address of the repository
    + key_url: where the key is
    + key_fingerprint: 40 hex digits
    + suite, components: where there are components, the repository is below the address, at
      SUITE/ARCHITECTURE/COMPONENT
    + packages_signed: whether each package must be signed, too
    + proxies: http_proxy, https_proxy and no_proxy for the download of the key, and for the repository
    """
    key, source, stamp = manager.paths(label)
    repository = PackageRepository(
        manager.family, label, uri, key_url, key_fingerprint, suite, components, packages_signed, proxies or {}
    )
    address, text = repository.address, repository.text
    keeps(source, text)
    fact = host.get_fact(manager.fact, keyring=key, source=source, stamp=stamp, uri=address)
    present = known(fact, f"the package repository {label}")
    try:
        strays = second_entries(address, present.others)
    except ValueError as error:
        raise OperationRefused(f"the package repository {label}: {error}") from error
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
                PINNED_KEY + _KEY + manager.READ + _STAMP,
                name=label, key=key, source=source, stamp=stamp, text=text,
                key_url=key_url, fingerprint=key_fingerprint, **(proxies or {}),
            )
        )  # fmt: skip
    yield from commands(strays)


def removed(manager: RpmRepositories, label: str) -> Iterator[Any]:
    """Remove a repository of ours, with its key.

    + label: as for `trusted`
    """
    paths = manager.paths(label)
    there = [path for path in paths if known(host.get_fact(File, path=path), path).sha256 is not None]
    if not there:
        host.noop(f"the repository {label} is not trusted by gpunode")
        return
    yield script_command(f'{manager.FORGET}\nrm -f "$@"', *paths, name=label, key=paths[0])


__all__ = ["RpmRepositories", "removed", "trusted"]
