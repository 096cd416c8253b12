"""Do the MPS control daemons run, and with the settings that are asked for?"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace

from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.mps import Daemon, MpsDaemon, daemons
from gpunode.mps.change import counted, felt_by_clients, other_mode
from gpunode.mps.environment import PATHS, PIPE_DIRECTORY, environment_files
from gpunode.node import Node
from gpunode.settings import Settings

_MODES = {"exclusive-process": "Exclusive_Process", "default": "Default"}


def mps(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the daemons, their settings as they read them back, and the GPUs' compute mode."""
    return as_allowed(settings, node, _as_asked(settings, node))


def as_allowed(settings: Settings, node: Node, found: Iterable[Finding]) -> Iterator[Finding]:
    """Return what is found of MPS as pending where the settings do not allow what its clients would feel.

    A run is one transaction: while a restart waits it leaves all of MPS as it is, down to a percentage.
    """
    felt = felt_by_clients(settings.mps, len(node.pci.gpus), node.mps)
    waits = bool(felt) and settings.disruption.allow == "nothing"
    for item in found:
        if waits and item.component == "mps" and item.finding_class is not FindingClass.OK:
            item = replace(
                item,
                finding_class=FindingClass.RESTART_PENDING,
                cause=f"MPS clients run ({counted(felt)}) and disruption.allow is nothing",
                remedy="end its clients, or set disruption.allow = 'restart', and " + RUN,
                disturbs=Disturbance.restart,
            )
        yield item


def _as_asked(settings: Settings, node: Node) -> Iterator[Finding]:
    asked = settings.mps
    wanted = daemons(asked, range(len(node.pci.gpus))) if asked.enabled else ()
    for daemon in wanted:
        yield from _daemon(daemon, node.mps.daemon(daemon.unit))
    for extra in node.mps.daemons:
        if extra.unit not in {daemon.unit for daemon in wanted}:
            yield compared("mps", Subject.SERVICE.of(extra.unit), "there", "none", False, disturbs=Disturbance.restart)
    yield from _environment(settings, node)
    # The unit sets the mode, and brings it back at each start: another unit is a restart.
    by_unit = other_mode(asked, wanted, node.mps)
    disturbs = Disturbance.restart if by_unit else Disturbance.nothing
    for gpu in node.gpus.gpus if asked.enabled else ():
        mode, found = _MODES[asked.compute_mode], gpu.compute_mode
        good = found == mode and not by_unit
        found = f"{mode}, until the daemon starts again" if found == mode and by_unit else found
        yield compared("mps", Subject.COMPUTE_MODE.of(str(gpu.index)), found, mode, good, disturbs=disturbs)


def _environment(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the files by which programs find the daemon."""
    wanted, there = environment_files(settings.mps), dict(node.mps.files)
    for path in PATHS:
        text, digest = wanted.get(path), there.get(path)
        if text is None and digest is None:
            continue
        good = text is not None and digest == hashlib.sha256(text.encode()).hexdigest()
        found = PIPE_DIRECTORY if good or text is None else "none" if digest is None else "another text"
        found = "somebody else's" if text is not None and path in node.mps.foreign else found
        asked = "none" if text is None else PIPE_DIRECTORY
        yield compared("mps", Subject.MPS_ENVIRONMENT.of(path), found, asked, good)


def _daemon(daemon: Daemon, found: MpsDaemon | None) -> Iterator[Finding]:
    answers = found is not None and found.active and found.answers
    state = "none" if found is None else "answers" if answers else "does not answer" if found.active else "stopped"
    cause = f"its log: {found.last_error}" if found is not None and found.last_error else None
    # One that runs and does not answer may have clients.
    disturbs = Disturbance.restart if found is not None and found.active else Disturbance.nothing
    yield compared("mps", Subject.SERVICE.of(daemon.unit), state, "answers", answers, cause=cause, disturbs=disturbs)
    if found is None or not answers:
        return
    at_boot = "yes" if found.enabled else "no"
    yield compared("mps", Subject.AT_BOOT.of(daemon.unit), at_boot, "yes", found.enabled)
    if found.stale:
        yield Finding(
            "mps", FindingClass.RESTART_PENDING, Subject.RUNNING_CONFIGURATION.of(daemon.unit), "older than its unit",
            "the unit's", cause="the unit was written after the daemon started", remedy=RUN,
            disturbs=Disturbance.restart,
        )  # fmt: skip
    for item in daemon.controls:
        said = found.reads(item.question)
        what = Subject.MPS_SETTING.of(f"{daemon.name}, {item.question.removeprefix('get_default_')}")
        yield compared("mps", what, said or "none", item.answer or "none", said == item.answer)
