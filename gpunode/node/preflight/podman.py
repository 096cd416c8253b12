"""Has the node's distribution a podman that hands GPUs to containers, beside the toolkit that is to come?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables, versions
from gpunode.base.codes import preflight
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.podman.decide import desired_of, lacks
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.settings.podman import Archive, known

_TABLE = "gpunode/data/podman.yaml"
_ELSEWHERE = "have podman {first} or newer from a repository of your own and set podman.version to its version"


def podman_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a podman that hands no GPU to a container: there is none, it knows no CDI, or not the toolkit's."""
    desired, row, archive = settings.podman, known(), _archive(machine)
    if not desired.enabled:
        return
    if desired.source == "present" and (program := lacks(desired_of(settings), machine.podman)):
        reason = f"podman.default_runtime is {program!r}, and the node has no {program}: no container would start"
        remedy = f"install {program} on the node, or leave podman.default_runtime out"
        where = "the node's PATH, and podman's containers.conf"
        yield Refusal("podman", reason, where, remedy, preflight("podman-without-runtime"))
    # What is there stays as it is, unless another version is desired.
    found = desired.version or machine.podman.version
    whose, source = f"podman {found}", "podman.version" if desired.version else "podman --version on the node"
    if found is None and desired.source == "distribution" and archive is not None:
        found, whose, source = archive.podman, f"podman {archive.podman} of {_name(machine)}'s archive", _TABLE
        if not found:
            remedy = f"{_ELSEWHERE.format(first=row.first_with_cdi)}, or set podman.enabled = False"
            reason = f"{_name(machine)} has no package podman"
            yield Refusal("podman", reason, _TABLE, remedy, preflight("podman-not-packaged"))
    if not found:
        return
    if not versions.at_least(found, versions.major_minor(row.first_with_cdi)):
        remedy = f"{_ELSEWHERE.format(first=row.first_with_cdi)}, or set podman.enabled = False"
        reason = f"{whose} knows no CDI, by which containers get GPUs"
        yield Refusal("podman", reason, source, remedy, preflight("podman-without-cdi"))
    elif (toolkit := settings.toolkit.version or machine.toolkit.version) and _cannot_read(found, toolkit):
        yield Refusal(
            "podman",
            f"{whose} cannot read CDI specifications of toolkit {toolkit} (additionalGids)",
            _TABLE,
            f"set toolkit.version = '1.18.2', or {_ELSEWHERE.format(first=row.first_with_gids)}",
            preflight("podman-reads-no-gids"),
        )


def podman_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Tell of a version that the archive does not have, and of a toolkit that may come too new for the one it has."""
    desired, row, archive = settings.podman, known(), _archive(machine)
    if not desired.enabled or desired.source != "distribution":
        return
    there = machine.podman.version
    if desired.version is not None and archive is not None:
        has = archive.podman
        if not any(each and versions.in_branch(each, desired.version) for each in (has, there)):
            yield Caution(
                "podman",
                f"{_name(machine)}'s archive has {f'podman {has}' if has else 'no podman'}, and "
                f"{desired.version} is asked for: another repository of the node has to have it",
                _TABLE,
                "give the node that repository before the run, or leave podman.version out",
                preflight("podman-version-elsewhere"),
            )
    found = desired.version or there or (archive.podman if archive else None)
    undecided = settings.toolkit.version is None and machine.toolkit.version is None
    if found and undecided and _cannot_read(found, row.first_toolkit_with_gids):
        yield Caution(
            "podman",
            f"podman {found} cannot read CDI specifications of toolkit {row.first_toolkit_with_gids} and newer "
            "(additionalGids), and the newest toolkit is to come",
            _TABLE,
            f"set toolkit.version = '1.18.2', or {_ELSEWHERE.format(first=row.first_with_gids)}",
            preflight("podman-may-read-no-gids"),
        )


def _cannot_read(podman: str, toolkit: str) -> bool:
    row = known()
    reads = versions.at_least(podman, versions.major_minor(row.first_with_gids))
    return versions.at_least(toolkit, row.first_toolkit_with_gids) and not reads


def _archive(machine: Machine) -> Archive | None:
    system = machine.operating_system
    fitting = (row for row in known().archives if (row.id, row.version) == (system.id, system.version_id))
    return next(fitting, None)


def _name(machine: Machine) -> str:
    system = machine.operating_system
    row = tables.distribution(system.id, system.version_id)
    return row.name if row else system.name
