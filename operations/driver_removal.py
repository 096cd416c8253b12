"""The driver taken away, however it came: the third change of the driver's transaction.

Packages and a runfile's files go together, since what is on a node may be both. What goes is saved first, and comes
back where it cannot go as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyinfra import host

from gpunode.base.decision import target_digest
from gpunode.base.disruption import Disruption, Drain
from gpunode.base.folding import shortened
from gpunode.components.driver.loading import removal_waits
from gpunode.facts.driver import Driver
from gpunode.operations.driver_transaction import driver_transaction, driver_variables, emptied_for_driver
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.families import FAMILIES, DriverChange
from gpunode.operations.transaction import settled, transaction_command
from gpunode.packages.driver_packages.names import belongs
from gpunode.packages.driver_packages.simulation import Simulation


@node_operation
def removed(family: str, rollback: str, allowed: bool, drain: Drain | None = None) -> Iterator[Any]:
    """Remove a driver of packages, of NVIDIA's .run installer, or of both, and unload its module where nothing uses it.

    + rollback: required: nothing is changed where what is there cannot be saved; or best-effort
    + allowed: whether disruption.allow is reboot; if not, a driver that is loaded is left as it is, as pending
    """
    manager = FAMILIES[family]
    transaction = driver_transaction(manager, "driver_removal")
    yield from settled(transaction)
    state = manager.state()
    driver = read_fact(Driver, "the driver's state")
    if not state.driver and not driver.runfile:
        host.noop("there is no driver to remove")
        return
    if removal_waits(Disruption.reboot if allowed else Disruption.nothing, driver):
        host.noop(
            f"pending: the module {driver.loaded_version} is loaded, and disruption.allow is not reboot; the driver of "
            f"{' and '.join(driver.ways)} stays until then"
        )
        return
    if state.interrupted:
        yield from manager.finish()
        state = manager.state()
    going = sorted(state.driver)
    target = target_digest("absent", *(f"{name}={version}" for name, version in sorted(state.driver.items())))
    change = DriverChange({}, going, "")
    if going:
        refuse_more_than_the_driver(going, manager.simulation(change))
    yield from emptied_for_driver(drain, None)
    yield transaction_command(
        transaction,
        target,
        upstream="",
        kernel="",
        arguments=" ".join(f"{name}-" for name in going),
        expected="",
        names="",
        rollback=rollback,
        proof="packages",
        **driver_variables(manager, state),
        **manager.variables(change),
    )


def refuse_more_than_the_driver(going: Sequence[str], simulation: Simulation) -> None:
    """Raise OperationRefused where the manager would take other packages away together with the driver's."""
    others = [name for name, _ in simulation.goes if not belongs(name)]
    others += [name for name, _, _ in simulation.comes]
    if simulation.errors or others:
        what = shortened("; ".join(simulation.errors)) or f"{', '.join(others[:8])} would go or come with them"
        raise OperationRefused(
            f"driver: its packages cannot be removed alone: {what}; nothing was changed"
            f". Remedy: look at what needs {', '.join(going[:3])} on the node, and remove it yourself if it is to go"
        )
