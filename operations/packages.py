"""Packages at the version that was asked for, in one transaction, by whatever package manager the node has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.families import FAMILIES


@node_operation
def installed(
    family: str,
    desired: Mapping[str, str | None],
    one_version: bool = False,
    repository: str = "",
    replaces: Collection[str] = (),
    instead: str = "",
    waits: Callable[[], str | None] | None = None,
    lost: Callable[[], Collection[str]] = tuple,
) -> Iterator[Any]:
    """Install packages at the versions asked for, in one transaction, and check that this is what came.

    + desired: package name -> None (any version), a branch (`580`: its newest) or an upstream version
    + repository: label of the repository that they come from, whose list must be refreshed; empty: none of ours
    + one_version: the packages belong together: where the installed ones differ, all get the newest of their versions
    + replaces: packages that are removed in the same transaction
    + instead: how the settings ask for something that removes no other package: what is not told to go stays, and the
      transaction is refused before it is begun
    + waits: what tells by the node as it is why packages that are there stay as they are for now; None: nothing does
    + lost: what tells by the node as it is which files are lost, as patterns of paths: where the packages are installed
      all the same, those that own such a file are installed again
    """
    manager = FAMILIES[family]
    names = sorted({*desired, *replaces})
    present = manager.installed(names)
    if present.interrupted:
        yield from manager.finish()
        present = manager.installed(names)
    if one_version:
        desired = present.together(desired)
    missing = present.missing(desired)
    going = [name for name, _ in present.installed if name in replaces]
    gone = tuple(lost())
    if not missing and not going and not gone:
        host.noop(f"installed: {', '.join(f'{name} {version}' for name, version in present.installed)}")
        return
    if waits is not None and (reason := waits()) is not None:
        host.noop(f"restart pending: {reason}")
        host.log(f"restart pending: {', '.join(missing or gone)} would be installed, but {reason}")
        return
    if not missing and not going:
        yield manager.reinstall(gone, repository)
        return
    for name, rule in missing.items():
        if rule is not None and not rule.strip():
            raise OperationRefused(f"{name}: an empty version was asked for")
    # All that have a version, not the missing ones alone: the others must not be moved. What is there in any version
    # stays as it is.
    coming = [
        name if rule is None else f"{name}={rule}"
        for name, rule in sorted(desired.items())
        if name in missing or rule is not None
    ]
    yield manager.install([*coming, *(f"{name}-" for name in going)], repository, instead)
