"""Packages at the version that was asked for, in one transaction, by whatever package manager the node has."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.families import FAMILIES

# Why packages that are there stay as they are for now, None where nothing keeps them; and which files are lost.
Now = Callable[[], tuple[str | None, Collection[str]]]


@node_operation
def installed(
    family: str,
    desired: Mapping[str, str | None],
    one_version: bool = False,
    repository: str = "",
    replaces: Collection[str] = (),
    instead: str = "",
    lost: Collection[str] = (),
    now: Now | None = None,
) -> Iterator[Any]:
    """Install packages at the versions asked for, in one transaction, and check that this is what came.

    + desired: package name -> None (any version), a branch (`580`: its newest) or an upstream version
    + repository: label of the repository that they come from, whose list must be refreshed; empty: none of ours
    + one_version: the packages belong together: where the installed ones differ, all get the newest of their versions
    + replaces: packages that are removed in the same transaction
    + instead: how the settings ask for something that removes no other package: what is not told to go stays, and the
      transaction is refused before it is begun
    + lost: files that are lost, as patterns of paths: installed packages that own such a file are installed again
    + now: what tells by the node as it is why packages stay as they are for now, and which files are lost
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
    reason, lost = now() if now is not None else (None, lost)
    if not missing and not going and not lost:
        host.noop(f"installed: {', '.join(f'{name} {version}' for name, version in present.installed)}")
        return
    if reason is not None:
        host.noop(f"restart pending: {reason}")
        host.log(f"restart pending: {', '.join(missing or lost)} would be installed, but {reason}")
        return
    if not missing and not going:
        yield manager.reinstall(lost, repository)
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
