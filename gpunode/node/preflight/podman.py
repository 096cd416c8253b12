"""Has the node's distribution a podman that hands GPUs to containers, with the desired toolkit?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.runtimes.podman.decide import desired_of, lacks, reads
from gpunode.node.machine import Machine
from gpunode.settings import Settings
from gpunode.settings.runtimes import Archive, podman_versions

_TABLE = "gpunode/data/podman.yaml"
_ELSEWHERE = "have podman {first} or newer from a repository of your own and set podman.version to its version"

WITHOUT_RUNTIME = RefusalMessage(
    "podman-without-runtime",
    "podman's default runtime is to be a program that the node does not have.",
    reason="podman.default_runtime is {program!r}, and the node has no {program}: no container would start",
    source="the node's PATH, and podman's containers.conf",
    remedy="install {program} on the node, or leave podman.default_runtime out",
)
NOT_PACKAGED = RefusalMessage(
    "podman-not-packaged",
    "The distribution has no package podman, and gpunode installs podman only from the distribution.",
    reason="{name} has no package podman",
    source=_TABLE,
    remedy=_ELSEWHERE + ", or set podman.enabled = False",
)
WITHOUT_CDI = RefusalMessage(
    "podman-without-cdi",
    "The node's podman does not support CDI, by which containers get GPUs.",
    reason="{podman} does not support CDI, by which containers get GPUs",
    source="{source} (gpunode/data/podman.yaml, first_with_cdi)",
    remedy=_ELSEWHERE + ", or set podman.enabled = False",
)
READS_NO_GIDS = RefusalMessage(
    "podman-reads-no-gids",
    "The node's podman cannot read the CDI specification that this container toolkit writes.",
    reason="{podman} cannot read CDI specifications of toolkit {toolkit} (additionalGids)",
    source=_TABLE,
    remedy="set toolkit.version = '1.18.2', or " + _ELSEWHERE,
)


def podman_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node whose podman is missing, or cannot give a container a GPU by the toolkit's CDI specification."""
    desired, row, archive = settings.podman, podman_versions(), _archive(machine)
    if not desired.enabled:
        return
    if desired.source == "present" and (program := lacks(desired_of(settings), machine.podman)):
        yield WITHOUT_RUNTIME(program=program)
    # The installed podman stays, unless another version is desired.
    found = desired.version or machine.podman.version
    whose, source = f"podman {found}", "podman.version" if desired.version else "podman --version on the node"
    if found is None and desired.source == "distribution" and archive is not None:
        found, whose, source = archive.podman, f"podman {archive.podman} of {_name(machine)}'s archive", "its packages"
        if not found:
            yield NOT_PACKAGED(name=_name(machine), first=row.first_with_cdi)
    if not found:
        return
    if not versions.at_least(found, versions.major_minor(row.first_with_cdi)):
        yield WITHOUT_CDI(podman=whose, source=source, first=row.first_with_cdi)
    elif (toolkit := settings.toolkit.version or machine.toolkit.version) and not reads(found, toolkit):
        yield READS_NO_GIDS(podman=whose, toolkit=toolkit, first=row.first_with_gids)


VERSION_ELSEWHERE = CautionMessage(
    "podman-version-elsewhere",
    "The distribution's archive does not have the desired podman version.",
    reason="{name}'s archive has {actual}, and podman.version is {desired}: another repository must have it",
    source=_TABLE,
    remedy="give the node that repository before the run, or leave podman.version out",
    detail="The run finds out whether another repository of the node has it.",
)
MAY_READ_NO_GIDS = CautionMessage(
    "podman-may-read-no-gids",
    "The node's podman may not read the CDI specification that the newest container toolkit writes.",
    reason="podman {podman} cannot read CDI specifications of toolkit {toolkit} and newer (additionalGids), and "
    "toolkit.version is not set, so that the newest one is installed",
    source=_TABLE,
    remedy="set toolkit.version = '1.18.2', or " + _ELSEWHERE,
)


def podman_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of a version that the archive does not have, and of a toolkit that may be too new for its podman."""
    desired, row, archive = settings.podman, podman_versions(), _archive(machine)
    if not desired.enabled or desired.source != "distribution":
        return
    installed = machine.podman.version
    rule, has = desired.version, (archive.podman if archive else None, installed)
    if rule is not None and archive is not None and not any(each and versions.in_branch(each, rule) for each in has):
        actual = f"podman {archive.podman}" if archive.podman else "no podman"
        yield VERSION_ELSEWHERE(name=_name(machine), actual=actual, desired=rule)
    found = desired.version or installed or (archive.podman if archive else None)
    undecided = settings.toolkit.version is None and machine.toolkit.version is None
    if found and undecided and not reads(found, row.first_toolkit_with_gids):
        yield MAY_READ_NO_GIDS(podman=found, toolkit=row.first_toolkit_with_gids, first=row.first_with_gids)


def _archive(machine: Machine) -> Archive | None:
    system = machine.operating_system
    fitting = (row for row in podman_versions().archives if (row.id, row.version) == (system.id, system.version_id))
    return next(fitting, None)


def _name(machine: Machine) -> str:
    system = machine.operating_system
    row = tables.distribution(system.id, system.version_id)
    return row.name if row else system.name
