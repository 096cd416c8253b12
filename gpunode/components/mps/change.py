"""The files of the MPS daemons, what a run does to them and the daemons, and which clients it affects."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpunode.base.decision import target_digest
from gpunode.base.template import rendered
from gpunode.components.mps.daemon import COMPUTE_MODES, FOLDER, NODE, UNITS, Daemon, control_text
from gpunode.components.mps.state import Mps, MpsDaemon
from gpunode.settings.sharing import MpsSettings
from gpunode.system.gpu import Gpu


@dataclass(frozen=True)
class MpsChange:
    """Hold what one transaction does.

    written: path -> text; removed: paths of files
    gone, restart, told: units that go, that are restarted, and that are told their settings anew
    modes: indices of the GPUs whose compute mode is set beside that
    felt: the daemons with clients among those that go or are restarted; one that does not say how many may have some
    target: digest of what is to be reached
    """

    written: Mapping[str, str]
    removed: tuple[str, ...]
    gone: tuple[str, ...]
    restart: tuple[str, ...]
    told: tuple[str, ...]
    modes: tuple[int, ...]
    felt: tuple[MpsDaemon, ...]
    target: str = ""


def change(daemons: Sequence[Daemon], settings: MpsSettings, actual: Mps, gpus: Sequence[Gpu]) -> MpsChange:
    """Return what makes a node's daemons those that are desired; without daemons, all of gpunode's goes.

    daemons: those that the settings ask for; gpus: as nvidia-smi lists them
    """
    texts, digests = desired_files(daemons, settings, actual.program or ""), actual_digests(actual)
    written = {path: text for path, text in texts.items() if digests.get(path) != _digest(text)}
    restart = tuple(each.unit for each in daemons if each.unit_path in written or not _well(actual.daemon(each.unit)))
    units = {each.unit for each in daemons}
    gone = tuple(each.unit for each in actual.daemons if each.unit not in units)
    # A unit that starts sets the mode of its own daemon's GPUs.
    by_unit = {
        index
        for each in daemons
        if each.unit in restart and settings.compute_mode == "exclusive-process"
        for index in each.gpus
    }
    mode = COMPUTE_MODES[settings.compute_mode]
    return MpsChange(
        written=written,
        removed=tuple(path for path in digests if path not in texts),
        gone=gone,
        restart=restart,
        told=tuple(each.unit for each in daemons if each.unit not in restart and _is_told(each, actual, written)),
        modes=tuple(each.index for each in gpus if daemons and each.index not in by_unit and each.compute_mode != mode),
        felt=tuple(each for each in actual.daemons if each.unit in (*restart, *gone) and each.clients != 0),
        target=target_digest(*(f"{path}\0{text}" for path, text in sorted(texts.items())), *gone),
    )


def _is_told(daemon: Daemon, actual: Mps, written: Mapping[str, str]) -> bool:
    each = actual.daemon(daemon.unit)
    if each is None:
        return False
    reads_otherwise = any(each.reads(item.question) != item.answer for item in daemon.controls)
    # One that does not start at boot is enabled on the way; being told once more harms nobody.
    return daemon.settings_path in written or reads_otherwise or not each.enabled


def _well(daemon: MpsDaemon | None) -> bool:
    return daemon is not None and daemon.active and daemon.answers and not daemon.stale


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
