"""What all package managers' repositories of ours have in common: their files, whether they are good, their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.facts.file import File
from gpunode.operations.failure import require
from gpunode.operations.script import script_command
from gpunode.packages.deb import AptRepository
from gpunode.packages.keyring import PERMISSIONS, PRIMARY_KEYS
from gpunode.packages.repositories import key_path, source_path

PINNED_KEY = f"{PRIMARY_KEYS}{script_file('pinned_key')}"


class Repositories:
    """Say how a package manager has its repositories: one subclass each.

    ALSO are the endings of further files beside the stamp. Shell text: FORGET takes away what the manager keeps of the
    repository $name beside its files.
    """

    family = ""
    ALSO: tuple[str, ...] = ()
    FORGET = ":"

    def paths(self, label: str) -> tuple[str, str, str]:
        """Return key, source and stamp of a repository."""
        stamp = f"/var/lib/gpunode/{self.family}/{label}.refreshed"
        return key_path(self.family, label), source_path(self.family, label), stamp

    def no_repository(self, label: str) -> Iterator[Any]:
        """Remove a repository of ours, with its key; what apt has of its lists goes with the next refresh."""
        key, source, stamp = self.paths(label)
        paths = (key, source, stamp, *(stamp.replace("refreshed", ending) for ending in self.ALSO))
        actual = [path for path in paths if require(host.get_fact(File, path=path), path).sha256 is not None]
        if not actual:
            host.noop(f"the repository {label} is not trusted by gpunode")
            return
        yield script_command(f'{self.FORGET}\nrm -f "$@"', *paths, name=label, key=key)


def is_good(present: AptRepository, key_fingerprint: str, text: str) -> bool:
    """Say whether a repository has its one key and its source, and was read since both are as they are."""
    return (
        present.fingerprints == (key_fingerprint,)
        and present.permissions == PERMISSIONS
        and present.source == text
        and present.digest is not None
        and present.digest == present.refreshed
    )
