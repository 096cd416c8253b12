"""The files of the MPS daemons: what they are to contain, and the digests of those that are on the node."""

from __future__ import annotations

from collections.abc import Sequence

from gpunode.base.template import rendered
from gpunode.components.mps.daemon import FOLDER, NODE, UNITS, Daemon, control_text
from gpunode.components.mps.environment import environment_files
from gpunode.components.mps.state import Mps
from gpunode.settings.mps import MpsSettings

APPLY = "/usr/local/lib/gpunode/nvidia-mps-settings"


def desired_files(daemons: Sequence[Daemon], settings: MpsSettings, program: str) -> dict[str, str]:
    """Return path -> text of all that belongs to the daemons; program: the path of the control program."""
    if not daemons:
        return {}
    each = daemons[0].name != NODE
    unit = rendered(
        "nvidia-mps.service",
        each=each,
        exclusive=settings.compute_mode == "exclusive-process",
        program=program,
        apply=APPLY,
        folder=FOLDER,
    )
    controls = {daemon.settings_path: control_text(daemon.controls) for daemon in daemons}
    script = rendered("nvidia-mps-settings", program=program)
    return {UNITS[each]: unit, APPLY: script, **controls, **environment_files(settings)}


def actual_digests(actual: Mps) -> dict[str, str]:
    """Return path -> SHA-256 of what is there of the daemons' files."""
    return dict(actual.files) | {each.settings_path: each.settings for each in actual.daemons if each.settings}
