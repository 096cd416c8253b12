"""MPS control daemons: units that systemd keeps running, with their settings proven by reading them back.

A daemon that is told new settings needs no restart; its clients would feel one.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.drain.commands import Drain
from gpunode.facts.gpu import Gpus
from gpunode.facts.mps import APPLY
from gpunode.facts.mps import Mps as MpsFact
from gpunode.gpu import Gpu
from gpunode.mps import Daemon, Mps, MpsDaemon, control_text
from gpunode.mps.change import counted, effect
from gpunode.mps.daemon import FOLDER, NODE, UNITS
from gpunode.mps.environment import PATHS, environment_files
from gpunode.mps.memory import without_room
from gpunode.operations.drain import emptied
from gpunode.operations.failure import OperationRefused, known, node_operation
from gpunode.operations.keeping import digest_as_read
from gpunode.operations.own_files import keeps, keeps_all
from gpunode.operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command
from gpunode.settings.mps import MpsSettings
from gpunode.shell_file import script_file
from gpunode.template import rendered

_CHANGE = Transaction("mps", script_file("mps_modes", "mps"))


@dataclass(frozen=True)
class _Work:
    """Hold what is to be done: files to write (path -> text) and remove, units by what they need, who feels it."""

    written: Mapping[str, str]
    removed: Sequence[str]
    gone: Sequence[str]
    restart: Sequence[str]
    told: Sequence[str]
    modes: Sequence[int]
    felt: Sequence[MpsDaemon]

    @property
    def is_none(self) -> bool:
        return not (self.written or self.removed or self.gone or self.restart or self.told or self.modes)


@node_operation
def daemons(
    wanted: Sequence[Daemon], asked: MpsSettings, restart_allowed: bool, drain: Drain | None = None
) -> Iterator[Any]:
    """Keep exactly these MPS control daemons running, each with its settings; none: what gpunode set up goes.

    + wanted: the daemons
    + asked: the settings that they were made from
    + restart_allowed: if not, a daemon with clients is left as it is where it would have to be restarted
    + drain: how the node is emptied before a daemon with clients is restarted or goes; None where it is not
    """
    yield from settled(_CHANGE)
    state: Mps = known(host.get_fact(MpsFact), "the state of MPS")
    if wanted and state.program is None:
        if host.state is not None and host.state.is_executing:
            raise OperationRefused(
                "mps: nvidia-cuda-mps-control is not installed; it comes with the driver's packages of NVIDIA's "
                "repository and with its .run file, and is the package nvidia-cuda-mps in Debian's archive"
            )
        yield StringCommand("true")  # a forecast: it comes with an operation before this one
        return
    # A variable that nobody asks gpunode for is anybody's to set.
    theirs = [path for path in state.foreign if path not in PATHS or path in environment_files(asked)]
    if wanted and theirs:
        setting = "mps.environment" if set(theirs) <= set(PATHS) else "mps.enabled"
        raise OperationRefused(
            f"mps: {', '.join(theirs)} is not of gpunode's making, and would be written over; nothing was "
            f"changed. Stop that service and remove it, or leave {setting} out"
        )
    gpus: tuple[Gpu, ...] = known(host.get_fact(Gpus), "the GPUs").gpus if wanted else ()
    if wanted and (reason := without_room(asked, {gpu.index: gpu.memory_mib for gpu in gpus})):
        raise OperationRefused(f"mps: {reason}; nothing was changed")
    texts = _files(wanted, asked, state.program or "")
    keeps_all(texts, _there(state))
    work = _work(wanted, asked, state, texts, gpus)
    if work.is_none:
        host.noop(f"MPS: {', '.join(daemon.unit for daemon in wanted)} as asked" if wanted else "no MPS of gpunode's")
        return
    if work.felt and not restart_allowed:
        host.noop(f"restart pending: MPS clients run ({counted(work.felt)}) and disruption.allow is nothing")
        host.log("restart pending: the MPS daemon is to change, but disruption.allow is nothing")
        return
    keeps_all(texts)
    for path in work.removed:
        keeps(path, None)
    target = target_digest(*(f"{path}\0{text}" for path, text in sorted(texts.items())), *work.gone)
    refuse_failed(_CHANGE, target)
    if work.felt:
        yield from emptied(drain, f"{', '.join(each.unit for each in work.felt)} is to be restarted or to go")
    modes, there = {path: "755" if path == APPLY else "644" for path in work.written}, _there(state)
    yield transaction_command(
        _CHANGE, target,
        read="\n".join(f"{path} {digest_as_read(there.get(path))}" for path in sorted({*work.written, *work.removed})),
        removed=" ".join(work.removed),
        written="\n".join(f"{path} {modes[path]} {_encoded(text)}" for path, text in sorted(work.written.items())),
        units=" ".join(daemon.unit for daemon in wanted), gone=" ".join(work.gone), restart=" ".join(work.restart),
        told=" ".join(work.told), modes=" ".join(map(str, work.modes)), mode=_word(asked), shown=_shown(asked),
        script=APPLY, folder_of_settings=FOLDER,
    )  # fmt: skip


def _files(wanted: Sequence[Daemon], asked: MpsSettings, program: str) -> dict[str, str]:
    """Return path -> text of all that belongs to the daemons."""
    if not wanted:
        return {}
    each = wanted[0].name != NODE
    unit = rendered(
        "nvidia-mps.service", each=each, exclusive=asked.compute_mode == "exclusive-process", program=program,
        apply=APPLY, folder=FOLDER,
    )  # fmt: skip
    settings = {daemon.settings_path: control_text(daemon.controls) for daemon in wanted}
    script = rendered("nvidia-mps-settings", program=program)
    return {UNITS[each]: unit, APPLY: script, **settings, **environment_files(asked)}


def _there(state: Mps) -> dict[str, str]:
    """Return path -> SHA-256 of what is there of the daemons' files."""
    return dict(state.files) | {
        f"{FOLDER}/{_name(each.unit)}.settings": each.settings for each in state.daemons if each.settings
    }


def _work(
    wanted: Sequence[Daemon], asked: MpsSettings, state: Mps, texts: Mapping[str, str], gpus: Sequence[Gpu]
) -> _Work:
    there = _there(state)
    written = {path: text for path, text in texts.items() if there.get(path) != _digest(text)}
    done = effect(wanted, state, other_unit=bool(set(UNITS) & set(written)))
    told = []
    for daemon in wanted:
        found = state.daemon(daemon.unit)
        if found is None or daemon.unit in done.restart:
            continue
        if daemon.settings_path in written or any(
            found.reads(item.question) != item.answer for item in daemon.controls
        ):
            told.append(daemon.unit)
        elif not found.enabled:
            # Enabled on the way; being told once more harms nobody.
            told.append(daemon.unit)
    removed = [path for path in there if path not in texts]
    shown = _shown(asked)
    # A unit that starts sets the mode of its own daemon's GPUs.
    by_unit = {
        index for daemon in wanted if daemon.unit in done.restart and asked.compute_mode == "exclusive-process"
        for index in daemon.gpus
    }  # fmt: skip
    modes = [gpu.index for gpu in gpus if wanted and gpu.index not in by_unit and gpu.compute_mode != shown]
    return _Work(written, removed, done.gone, done.restart, told, modes, done.felt)


def _name(unit: str) -> str:
    return unit.removeprefix("nvidia-mps@").removesuffix(".service") if "@" in unit else NODE


def _shown(asked: MpsSettings) -> str:
    return {"exclusive-process": "Exclusive_Process", "default": "Default"}[asked.compute_mode]


def _word(asked: MpsSettings) -> str:
    return {"exclusive-process": "EXCLUSIVE_PROCESS", "default": "DEFAULT"}[asked.compute_mode]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


__all__ = ["daemons"]
