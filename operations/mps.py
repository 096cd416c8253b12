"""MPS control daemons: units that systemd keeps running, with their settings proven by reading them back.

A daemon that is told new settings needs no restart; its clients would feel one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyinfra.api import StringCommand

from gpunode.base.disruption import Disruption, Drain
from gpunode.base.shell_file import script_file
from gpunode.components.mps.change import APPLY, actual_digests, desired_files
from gpunode.components.mps.daemon import COMPUTE_MODES, FOLDER, Daemon
from gpunode.components.mps.decide import Desired, decide
from gpunode.facts.gpu import Gpus
from gpunode.facts.gpu import Mps as MpsFact
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.keeping import digest_as_read
from gpunode.operations.own_files import keeps, keeps_all
from gpunode.operations.phase import is_executing
from gpunode.operations.runtime import to_carry_out
from gpunode.operations.script import encoded
from gpunode.operations.transaction import Transaction, refuse_failed, settled, transaction_command
from gpunode.settings.sharing import MpsSettings

_CHANGE = Transaction("mps", script_file("mps_modes", "mps"))


@node_operation
def daemons(
    desired: Sequence[Daemon], settings: MpsSettings, restart_allowed: bool, drain: Drain | None = None
) -> Iterator[Any]:
    """Keep exactly these MPS control daemons running, each with its settings; none: what gpunode set up goes.

    + restart_allowed: if not, a daemon with clients is left as it is where it would have to be restarted
    """
    yield from settled(_CHANGE)
    state = read_fact(MpsFact, "the state of MPS")
    if desired and state.program is None and not is_executing():
        yield StringCommand("true")  # a forecast: it comes with an operation before this one
        return
    gpus = read_fact(Gpus, "the GPUs").gpus if desired else ()
    texts, digests = desired_files(desired, settings, state.program or ""), actual_digests(state)
    allowed = Disruption.restart if restart_allowed else Disruption.nothing
    decision = decide(Desired(tuple(desired), settings, allowed), state, gpus)
    if decision.refusal is None:
        keeps_all(texts, digests)
    said = f"MPS: {', '.join(daemon.unit for daemon in desired)} as desired" if desired else "no MPS of gpunode's"
    change = to_carry_out(decision, said, "the MPS daemon is to change")
    if change is None:
        return
    keeps_all(texts)
    for path in change.removed:
        keeps(path, None)
    refuse_failed(_CHANGE, change.target)
    if change.felt and drain is not None:
        yield from drain(f"{', '.join(each.unit for each in change.felt)} is to be restarted or to go")
    mode, touched = COMPUTE_MODES[settings.compute_mode], sorted({*change.written, *change.removed})
    written = sorted(change.written.items())
    yield transaction_command(
        _CHANGE,
        change.target,
        read="\n".join(f"{path} {digest_as_read(digests.get(path))}" for path in touched),
        removed=" ".join(change.removed),
        written="\n".join(f"{path} {755 if path == APPLY else 644} {encoded(text)}" for path, text in written),
        units=" ".join(daemon.unit for daemon in desired),
        gone=" ".join(change.gone),
        restart=" ".join(change.restart),
        told=" ".join(change.told),
        modes=" ".join(map(str, change.modes)),
        mode=mode.upper(),
        shown=mode,
        script=APPLY,
        folder_of_settings=FOLDER,
    )
