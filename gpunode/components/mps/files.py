"""The files of the MPS daemons: what they are to contain, and the digests of those that are on the node."""

from __future__ import annotations

from collections.abc import Sequence

from gpunode.base.template import rendered
from gpunode.components.mps.daemon import FOLDER, NODE, UNITS, Daemon, control_text
from gpunode.components.mps.state import Mps
from gpunode.settings.mps import MpsSettings

VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
# Of the unit's template, too. CUDA's own default is /tmp/nvidia-mps.
PIPE_DIRECTORY = "/run/nvidia-mps"
# Login shells read the first, users' own services by systemd the second; system services read neither.
PROFILE, ENVIRONMENT = "/etc/profile.d/gpunode-mps.sh", "/etc/environment.d/50-gpunode-mps.conf"
PATHS = (PROFILE, ENVIRONMENT)
_HEAD = "# Written by gpunode; changes are overwritten. CUDA programs find the node's MPS daemon by this."


def environment_files(desired: MpsSettings) -> dict[str, str]:
    """Return path -> text of the files that set the variable; none where they are not asked for."""
    if not (desired.enabled and desired.environment):
        return {}
    # Whoever has one already means another daemon.
    value = f"${{{VARIABLE}:-{PIPE_DIRECTORY}}}"
    return {
        PROFILE: f'{_HEAD}\nexport {VARIABLE}="{value}"\n',
        ENVIRONMENT: f"{_HEAD}\n{VARIABLE}={value}\n",
    }


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
