"""apt: repositories trusted by fingerprint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.base import tables
from gpunode.base.shell_file import script_file
from gpunode.facts.deb import AptRepository
from gpunode.operations.apt_shell import APT_GET, NOT_OLDER, READ_LISTS
from gpunode.operations.apt_trust import commands
from gpunode.operations.explained import explained_command
from gpunode.operations.failure import OperationRefused, node_operation, require
from gpunode.operations.own_files import keeps
from gpunode.operations.repositories import PINNED_KEY, Repositories, is_good
from gpunode.operations.script import script_command
from gpunode.packages import apt_trust
from gpunode.packages.repositories import PackageRepository

_TRUST = script_file("apt_trust")


class _Repositories(Repositories):
    family = "apt"
    ALSO = ("index",)


REPOSITORIES = _Repositories()


@node_operation
def repository(
    label: str,
    uri: str,
    key_url: str,
    key_fingerprint: str,
    suite: str = "/",
    components: str = "",
    packages_signed: bool = False,
    proxies: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Trust and read a package repository.

    The key is fetched on the node and refused unless its fingerprint is the pinned one; the keyring is root's alone to
    write. The lists are fetched again when source or key is not the one that they were fetched for; an index older than
    the last that was read of the same address is refused. Other entries for the same repository and retired keys that
    are trusted for every repository are put out of apt's sight (.gpunode-disabled), once ours is trusted.

    + label: names the files, `gpunode-LABEL.sources` and `gpunode-LABEL.gpg`
    + uri, suite, components: as in sources.list; suite `/` for a flat repository
    + key_fingerprint: 40 hex digits
    + packages_signed: nothing to apt, which takes the packages' digests from the signed list alone
    + proxies: http_proxy, https_proxy and no_proxy for the download of the key
    """
    keyring, source, stamp = REPOSITORIES.paths(label)
    text = PackageRepository("apt", label, uri, key_url, key_fingerprint, suite, components).text
    keeps(source, text)
    retired = tables.drivers().retired_key_ids
    fact = host.get_fact(
        AptRepository, keyring=keyring, source=source, stamp=stamp, uri=uri, distrusted=[*retired, key_fingerprint]
    )
    present = require(fact, f"the package repository {label}")
    try:
        strays = apt_trust.plan(uri, suite, present.architecture, present.others, present.trusted, retired)
    except ValueError as error:
        raise OperationRefused(f"the package repository {label}: {error}") from error
    for path in apt_trust.world_trusted(key_fingerprint, present.trusted):
        host.log(f"caution: {path} lets the key of {label} sign every repository; gpunode needs it there no more")
    for step in strays:
        host.log(f"{step.path}: {step.reason}; to be disabled")
    good = is_good(present, key_fingerprint, text)
    if good and not strays:
        host.noop(f"the repository {label} is trusted and read")
        return
    if not good:
        yield explained_command(
            script_command(
                PINNED_KEY + APT_GET + READ_LISTS + NOT_OLDER + _TRUST,
                name=label,
                keyring=keyring,
                source=source,
                stamp=stamp,
                text=text,
                key_url=key_url,
                fingerprint=key_fingerprint,
                **(proxies or {}),
            )
        )
    yield from commands(strays)


no_repository = node_operation(REPOSITORIES.no_repository)
