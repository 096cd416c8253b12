"""The NVIDIA kernel modules, and the services that need them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.base.shell_file import script_file
from gpunode.components.driver.loading import NO_MODULE, Act, Loading, decide_loading, step_of
from gpunode.components.driver.services import decide_peermem
from gpunode.components.driver.state import DriverState
from gpunode.facts.driver import Driver
from gpunode.facts.system import Boot, Unit
from gpunode.facts.transaction import FOLDER
from gpunode.operations import systemd
from gpunode.operations.driver_transaction import DRIVER
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.script import script_command

_LOAD = script_file("nouveau", "driver_load")
_PEERMEM = script_file("driver_peermem")


def driver_state() -> DriverState:
    """Return the driver's state; what boots next is asked for only where the running kernel has no module on disk."""
    driver = read_fact(Driver, "the driver's state")
    if driver.module_version is not None:
        return driver
    return driver.with_next_kernel(read_fact(Boot, "what boots next"))


@node_operation
def module_loaded() -> Iterator[Any]:
    """Load nvidia and nvidia_uvm where they are not loaded, make its device, and check that they are those on disk.

    A loaded module of another version is left alone: to swap it takes a reset or a reboot, which the verdict reports
    as pending, as it does where only the kernel that boots next has a module. One that came with the last change of
    packages and does not load after a boot is undone with them.
    """
    driver = driver_state()
    decision = decide_loading(Loading(), driver)
    if step := step_of(decision, Act.BOOT):
        host.noop(f"reboot pending: {step.settles[0].actual} is loaded, {step.settles[0].desired} is to come")
        return
    if not decision.steps and not driver.unproven and driver.loaded_version is not None:
        host.noop(f"the module {driver.loaded_version} is loaded, and nvidia_uvm")
        return
    # In preparation the packages may be yet to come; in execution an absent module is an error.
    if driver.module_version is None and host.state is not None and host.state.is_executing:
        raise OperationRefused(NO_MODULE)
    yield script_command(_LOAD, wanted=driver.module_version or "", folder=FOLDER, transaction=DRIVER.name)


@node_operation
def peermem_loaded() -> Iterator[Any]:
    """Load nvidia_peermem where it is not loaded and can be; what is in its way is told by the verdict."""
    decision = decide_peermem(True, driver_state())
    if not decision.steps:
        item = next(iter(decision.findings), None)
        host.noop(
            "reboot pending: nvidia_peermem comes with the module that is to be loaded"
            if item is None
            else item.cause or "nvidia_peermem is loaded"
        )
        return
    yield script_command(_PEERMEM)


@node_operation
def service(unit: str, required: bool) -> Iterator[Any]:
    """Keep a service that needs the loaded module running and started at boot; not while a reboot is pending.

    + unit: the unit's full name
    + required: whether a node without that unit fails; else it is passed over
    """
    present = read_fact(Unit, unit, unit=unit)
    executing = host.state is not None and host.state.is_executing
    if present.load_state == "not-found" and not required and executing:
        host.noop(f"there is no {unit}")
        return
    driver = driver_state()
    if driver.reboot_pending and not present.running:
        if not present.enabled:
            yield StringCommand("systemctl", "enable", QuoteString(unit))
        else:
            host.noop(f"reboot pending: {unit} would not start with the module that is loaded")
        return
    yield from systemd.running._inner(unit)
