"""Repositories in .repo files, dnf's and zypper's: trusted by fingerprint, and read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.facts.families.rpm import RpmRepository
from gpunode.operations.apt_trust import commands
from gpunode.operations.explained import explained_command
from gpunode.operations.failure import OperationRefused, require
from gpunode.operations.own_files import keeps
from gpunode.operations.repositories import PINNED_KEY, Repositories, is_good
from gpunode.operations.script import script_command
from gpunode.packages.families.rpm import second_entries
from gpunode.packages.repositories import PackageRepository

_KEY = script_file("rpm_trust")
_STAMP = """
cat "$source" "$key" | sha256sum | cut -d' ' -f1 > "$stamp"
"""


class RpmRepositories(Repositories):
    """Say how a package manager has its repositories: one subclass each.

    Shell text: READ makes the manager read the repository $name by the key $key anew, and fails where it cannot.
    """

    READ = ""
    fact: type[RpmRepository]

    def repository(
        self,
        label: str,
        uri: str,
        key_url: str,
        key_fingerprint: str,
        suite: str = "/",
        components: str = "",
        packages_signed: bool = True,
        proxies: Mapping[str, str] | None = None,
    ) -> Iterator[Any]:
        """Trust and read a package repository.

        The key is fetched on the node and refused unless its fingerprint is the pinned one; metadata must be signed by
        it, and each package, where the publisher signs them. Other enabled entries for the same repository are switched
        off.

        + label: names the files, `gpunode-LABEL.repo` and `gpunode-LABEL.asc`
        + key_fingerprint: 40 hex digits
        + suite, components: where there are components, the repository is below the address, at
          SUITE/ARCHITECTURE/COMPONENT
        + packages_signed: whether each package must be signed, too
        + proxies: http_proxy, https_proxy and no_proxy for the download of the key, and for the repository
        """
        key, source, stamp = self.paths(label)
        repository = PackageRepository(
            self.family, label, uri, key_url, key_fingerprint, suite, components, packages_signed, proxies or {}
        )
        address, text = repository.address, repository.text
        keeps(source, text)
        fact = host.get_fact(self.fact, keyring=key, source=source, stamp=stamp, uri=address)
        present = require(fact, f"the package repository {label}")
        try:
            strays = second_entries(address, present.others)
        except ValueError as error:
            raise OperationRefused(f"the package repository {label}: {error}") from error
        for step in strays:
            host.log(f"{step.path}: {step.reason}; to be disabled")
        good = is_good(present, key_fingerprint, text)
        if good and not strays:
            host.noop(f"the repository {label} is trusted and read")
            return
        if not good:
            yield explained_command(
                script_command(
                    PINNED_KEY + _KEY + self.READ + _STAMP,
                    name=label,
                    key=key,
                    source=source,
                    stamp=stamp,
                    text=text,
                    key_url=key_url,
                    fingerprint=key_fingerprint,
                    **(proxies or {}),
                )
            )
        yield from commands(strays)
