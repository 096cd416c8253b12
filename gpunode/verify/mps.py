"""Do the MPS control daemons run, and with the settings that are asked for?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.mps import Daemon, MpsDaemon, daemons
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import RUN, compared
from gpunode.verify.subject import Subject

_MODES = {"exclusive-process": "Exclusive_Process", "default": "Default"}


def mps(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the daemons, their settings as they read them back, and the GPUs' compute mode."""
    asked = settings.mps
    wanted = daemons(asked, range(len(node.pci.gpus))) if asked.enabled else ()
    for daemon in wanted:
        yield from _daemon(daemon, node.mps.daemon(daemon.unit))
    for extra in node.mps.daemons:
        if extra.unit not in {daemon.unit for daemon in wanted}:
            yield compared("mps", Subject.SERVICE.of(extra.unit), "there", "none", False, disturbs=Disturbance.restart)
    for gpu in node.gpus.gpus if asked.enabled else ():
        mode = _MODES[asked.compute_mode]
        yield compared("mps", Subject.COMPUTE_MODE.of(str(gpu.index)), gpu.compute_mode, mode, gpu.compute_mode == mode)


def _daemon(daemon: Daemon, found: MpsDaemon | None) -> Iterator[Finding]:
    answers = found is not None and found.active and found.answers
    state = "none" if found is None else "answers" if answers else "does not answer" if found.active else "stopped"
    cause = f"its log: {found.last_error}" if found is not None and found.last_error else None
    yield compared("mps", Subject.SERVICE.of(daemon.unit), state, "answers", answers, cause=cause)
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
