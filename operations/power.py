"""Power limits, clocks and ECC of the GPUs: one script tells each GPU what the settings ask, and reads it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.decision import Decision
from gpunode.base.disruption import Disruption, Drain
from gpunode.base.shell_file import script_file
from gpunode.components.power.decide import Desired, PowerChange, decide
from gpunode.components.power.state import FILES, NAME, NOTE, UNIT, rules, texts
from gpunode.facts.gpu import Gpus, Power
from gpunode.operations.driver import driver_state
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.own_files import keeps
from gpunode.operations.reboot import FORGET, new_boot
from gpunode.operations.script import STANDARD_INPUT, command_with_input, encoded, script_command
from gpunode.settings.power import PowerSettings
from gpunode.system.running_boot import RECORD

_SET = script_file("power_apply") + STANDARD_INPUT + script_file("power")
# By these words the record of reboots tells those for a mode of ECC.
_BOOTS = {True: "ecc-on", False: "ecc-off"}


@node_operation
def kept(settings: PowerSettings, allowed: str, timeout: int = 900, drain: Drain | None = None) -> Iterator[Any]:
    """Keep power limits, clocks and ECC at the settings, now and after each load of the driver; none: defaults again.

    + allowed: disruption.allow: at `reboot` the node is booted where a mode of ECC waits for that
    + timeout: seconds within which it must then answer from its new boot
    """
    wanted = texts(rules(settings))
    driver = driver_state()
    desired = Desired(settings, Disruption[allowed], driver.reboot_pending)
    decision = _decided(desired)
    if decision.refusal is not None:
        raise OperationRefused(decision.refusal)
    if decision.steps and all(step.change is None for step in decision.steps):
        if host.state is None or not host.state.is_executing:
            yield StringCommand("true")  # a forecast: the driver comes with an operation before this one
        else:
            host.noop(f"power: {decision.findings[0].cause}; a later run sets it")
        return
    for path in FILES:
        keeps(path, wanted.get(path))
    change = next((step.change for step in decision.steps if step.change and not step.change.boots), None)
    if change is not None:
        yield _command(change)
        if settings.ecc is not None:
            decision = _decided(desired)
    elif not decision.steps and driver.booted_for in _BOOTS.values():
        host.log("the boot that an earlier run asked for has helped")
        yield script_command(FORGET, record=RECORD)
    elif not decision.steps and (unknown := [item for item in decision.findings if item.is_negative]):
        host.noop(f"power: {unknown[0].what} not known: {unknown[0].cause}; nothing was changed")
    elif not decision.steps:
        host.noop("power limits, clocks and ECC as desired" if settings.is_asked else "no power limits of gpunode's")
    boot = next((step for step in decision.steps if step.change and step.change.boots), None)
    if boot is None:
        return
    if boot.waits is not None:
        told = "reboot pending: a mode of ECC waits for a boot"
        host.log(f"{told}, but {boot.waits}") if change is not None else host.noop(f"{told}, but {boot.waits}")
        return
    yield from new_boot(_BOOTS[bool(settings.ecc)], timeout, drain=drain)
    if any(step.change and step.change.boots for step in _decided(desired).steps):
        raise OperationRefused(
            "power: the node has rebooted, and a GPU still has not changed its mode of ECC. It is not rebooted for "
            "that again. Remedy: see `nvidia-smi -q -d ECC` on it"
        )
    yield script_command(FORGET, record=RECORD)


def _decided(desired: Desired) -> Decision[PowerChange]:
    """Decide by the node as it is now."""
    actual = read_fact(Power, "what gpunode keeps of power limits")
    return decide(desired, actual, read_fact(Gpus, "the GPUs"))


def _command(change: PowerChange) -> StringCommand:
    written = "\n".join(f"{path} {encoded(text)}" for path, text in sorted(change.written.items()))
    command = script_command(
        _SET,
        tasks="\n".join(task.line for task in change.tasks),
        removed=" ".join(change.removed),
        enable="yes" if change.enable else "",
        unit=NAME,
        unit_path=UNIT,
        note=NOTE,
    )
    return command_with_input(command, written)
