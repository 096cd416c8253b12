"""The driver's transaction: what is saved before a change, how the change is proven, and how it is put back.

It is one, whichever way the driver comes: what it saves and puts back is packages and what a .run file installed. Only
the change differs: packages are in operations/driver_packages.py, .run files in operations/runfile.py.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runfile import CAUSES, uninstall_arguments, way_back
from gpunode.facts.driver import Driver
from gpunode.operations.failure import read_fact
from gpunode.operations.families import APT, Family
from gpunode.operations.transaction import Transaction
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.names import FOREIGN, OWN

FETCH = script_file("fetching", "runfile_fetch")
# What the log of an installer means, in the order of gpunode.components.runfile.CAUSES.
_CASES = "".join(f"*{shlex.quote(pattern)}*) advice={shlex.quote(cause)};;\n" for pattern, cause in CAUSES)
INSTALLER = f'advise() {{ case "$1" in\n{_CASES}esac; }}\n{script_file("runfile_installer")}'
RUNFILE = INSTALLER + script_file("runfile")


def driver_transaction(family: Family, change: str = "driver_packages") -> Transaction:
    """Return the driver's transaction with the functions of a package manager.

    + change: which of templates/scripts is its change: driver_packages, driver_runfile or driver_removal
    """
    return Transaction("driver", family.functions + RUNFILE + script_file("nouveau", "driver", change))


DRIVER = driver_transaction(APT)


def driver_variables(family: Family, state: DriverPackages) -> dict[str, str]:
    """Return the variables of the driver's transaction that are the node's and the family's, not the change's.

    They tell how a runfile's driver comes back, where there is one, and what was read of the files that keep packages
    still.
    """
    driver = read_fact(Driver, "the driver's state")
    return {
        "own": OWN,
        "foreign": FOREIGN,
        "saved": family.saved,
        "holding": "\n".join(f"{path} {digest}" for path, digest in family.held_by(state).items()),
        "uninstall": " ".join(uninstall_arguments(None)),
        **way_back(driver),
    }


def emptied_for_driver(drain: Drain | None, upstream: str | None) -> Iterator[Any]:
    """Yield what empties the node where another driver than the loaded one is to come.

    A pod that started between the packages' change and the boot would find libraries of the one beside the module of
    the other.

    + upstream: version of the driver that is to come, or its branch; None: none is
    """
    if drain is None:
        return
    loaded = read_fact(Driver, "the driver's state").loaded_version
    if loaded is not None and not f"{loaded}.".startswith(f"{upstream}."):
        to_come = f"driver {upstream} is to take the place of {loaded}" if upstream else f"driver {loaded} is to go"
        if drain is not None:
            yield from drain(to_come)
