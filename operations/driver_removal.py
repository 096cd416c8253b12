"""The driver taken away, however it came: the third change of the driver's transaction.

Packages and a runfile's files go together, since what is on a node may be both. What goes is saved first, and comes
back where it cannot go as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyinfra import host

from facts.driver import Driver
from gpunode.drain.commands import Drain
from gpunode.driver_packages import Simulation, belongs
from operations.driver_transaction import driver_transaction, driver_variables, emptied_for_driver
from operations.failure import OperationRefused, known, node_operation
from operations.families import FAMILIES, DriverChange, Family
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

_REMOVE = r"""
# What needs the module lets it go; what was enabled would be looked for at each boot.
while read -r unit; do systemctl disable --quiet "$unit" || true; done < "$checkpoint/units"
systemctl stop nvidia-persistenced nvidia-fabricmanager > /dev/null 2>&1 || true
# As long as modprobe still finds them on the disk. What is in use stays until the node boots.
for module in nvidia_drm nvidia_modeset nvidia_peermem nvidia_uvm nvidia; do
  [ ! -d "/sys/module/$module" ] || modprobe -r "$module" 2> "$checkpoint/said" || rmmod "$module" ||
    { cat "$checkpoint/said" >&2; echo "gpunode: caution: $module is in use, and stays in memory until the boot" >&2; }
done
if runfile_there; then uninstall_runfile $before_uninstall || exit 1; fi
packages=$(cut -d' ' -f1 "$checkpoint/packages")
if [ -n "$packages" ]; then
  held=$(awk '$3 == "hold" {print $1}' "$checkpoint/packages")
  if [ -n "$held" ]; then release $held; fi
  unneeded | sort > "$checkpoint/unneeded"
  remove_driver $packages || {
    echo "gpunode: the driver's packages could not be removed; mend what it says above, and run again" >&2; exit 1; }
  left=$(driver_packages | cut -d' ' -f1)
  [ -z "$left" ] || { echo "gpunode: the package manager left" $left "installed" >&2; exit 1; }
  for package in $packages; do forget "$package"; done
fi
"""

# Neither can be had back: what goes here goes when nothing is undone any more.
_AFTERWARDS = r"""
# What came along with the driver, and nobody needs any more: round by round, for one may need the next.
rounds=0
while [ -e "$checkpoint/unneeded" ] && [ "$rounds" -lt 8 ]; do
  idle=$(unneeded | sort | grep -vxF -f "$checkpoint/unneeded" || true)
  [ -n "$idle" ] || break
  remove_unneeded $idle || { echo "gpunode: caution: nobody needs" $idle "any more, and they stay" >&2; break; }
  rounds=$((rounds + 1))
done
rm -f "$runfiles"/NVIDIA-Linux-*.run "$runfiles"/NVIDIA-Linux-*.run.sha256 "$runfiles"/NVIDIA-Linux-*.part
"""


def removal_transaction(family: Family) -> Transaction:
    """Return the driver's transaction where its change is that there is to be none."""
    return driver_transaction(family, change=_REMOVE, afterwards=_AFTERWARDS)


@node_operation
def removed(family: str, rollback: str, allowed: bool, drain: Drain | None = None) -> Iterator[Any]:
    """Remove a driver of packages, of NVIDIA's .run installer, or of both, and unload its module where nothing uses it.

    + family: of the node's package manager
    + rollback: required: nothing is changed where what is there cannot be saved; or best-effort
    + allowed: whether disruption.allow is reboot; if not, a driver that is loaded is left as it is, as pending
    + drain: how the node is emptied before a loaded driver goes; None where it is not
    """
    manager = FAMILIES[family]
    transaction = removal_transaction(manager)
    yield from settled(transaction)
    state = manager.state()
    driver = known(host.get_fact(Driver), "the driver's state")
    if not state.driver and not driver.runfile:
        host.noop("there is no driver to remove")
        return
    if driver.loaded_version is not None and not allowed:
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
    refuse_failed(transaction, target)
    change = DriverChange({}, going, "")
    if going:
        refuse_more_than_the_driver(going, manager.simulation(change))
    yield from emptied_for_driver(drain, None)
    yield transaction_command(
        transaction, target,
        upstream="", kernel="", arguments=" ".join(f"{name}-" for name in going), expected="", names="",
        rollback=rollback, proof="packages", **driver_variables(manager, state), **manager.variables(change),
    )  # fmt: skip


def refuse_more_than_the_driver(going: Sequence[str], simulation: Simulation) -> None:
    """Raise OperationRefused where the manager would take other packages away together with the driver's."""
    others = [name for name, _ in simulation.goes if not belongs(name)]
    others += [name for name, _, _ in simulation.comes]
    if simulation.errors or others:
        what = "; ".join(simulation.errors)[:600] or f"{', '.join(others[:8])} would go or come with them"
        raise OperationRefused(
            f"driver: its packages cannot be removed alone: {what}; nothing was changed. Look at what needs "
            f"{', '.join(going[:3])} on the node, and remove it yourself if it is to go"
        )


__all__ = ["refuse_more_than_the_driver", "removal_transaction", "removed"]
