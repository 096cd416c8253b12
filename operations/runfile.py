"""NVIDIA's .run files: fetched, checked, and run as one transaction that puts back what was there before.

The driver's transaction is that of operations/driver_transaction.py; here is its other change. A transaction that
was interrupted is therefore undone by the next run, whichever way of installing that one asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.disruption import Drain
from gpunode.components.driver.state import DriverState
from gpunode.components.runfile import Runfile, install_arguments, uninstall_arguments
from gpunode.facts.driver import Driver
from gpunode.facts.file import FetchedRunfile
from gpunode.facts.system import Boot as BootFact
from gpunode.operations.driver_removal import refuse_more_than_the_driver
from gpunode.operations.driver_transaction import FETCH, driver_transaction, driver_variables, emptied_for_driver
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.families import FAMILIES, DriverChange
from gpunode.operations.script import script_command
from gpunode.operations.transaction import refuse_failed, settled, transaction_command


def fetch_command(file: Runfile, proxies: Mapping[str, str], setting: str) -> StringCommand:
    """Return the command that fetches a .run file, or what is missing of it, and checks its SHA-256.

    + setting: the setting that holds the SHA-256, for the error that it is another one
    """
    return script_command(FETCH, path=file.path, url=file.url, sha256=file.sha256, setting=setting, **proxies)


@node_operation
def fetched(file: Runfile, proxies: Mapping[str, str], setting: str) -> Iterator[Any]:
    """Keep a .run file on the node; a download that was cut is resumed, one with another SHA-256 removed."""
    if read_fact(FetchedRunfile, file.path, path=file.path).is_whole(file.sha256):
        host.noop(f"{file.path} is there")
        return
    yield fetch_command(file, proxies, setting)


@node_operation
def installed(
    family: str,
    file: Runfile,
    version: str,
    flavour: str,
    dkms: bool,
    rollback: str,
    kernel: str | None,
    target: str = "",
    proof: str = "loaded",
    drain: Drain | None = None,
) -> Iterator[Any]:
    """Install a driver by its .run file, and put back what was there before (packages, too) if it does not work.

    + file: where it was fetched to, and its SHA-256, which is checked again before it is run
    + flavour: open or proprietary
    + dkms: whether DKMS builds the module for each new kernel
    + rollback: required: nothing is changed where what is there cannot be saved; or best-effort
    + kernel: release of the kernel that boots next; None: the running one
    + target, proof, drain: as for operations.driver_packages.installed
    """
    manager = FAMILIES[family]
    transaction = driver_transaction(manager, "driver_runfile")
    yield from settled(transaction)
    driver = read_fact(Driver, "the driver's state")
    boot = read_fact(BootFact, "what boots next")
    # A module for a kernel that does not run yet waits for it; the running one may have none.
    waits = boot.next_kernel is not None and boot.next_release != boot.running
    for_next = boot.next_kernel.module_version if boot.next_kernel and waits else driver.module_version
    actual = _is_there(driver, version, flavour, dkms, waits)
    if actual and for_next == version:
        host.noop(f"installed: {file.name}, {flavour}{', DKMS' if dkms else ''}")
        return
    install = install_arguments(version, flavour, dkms)
    if actual and waits:
        # All but the next kernel's module is there: DKMS builds it as it is proven, or the installer that alone.
        install = () if dkms else (*install, "--kernel-module-only")
    state = manager.state()
    if state.interrupted:
        yield from manager.finish()
        state = manager.state()
    refuse_failed(transaction, target)
    going = sorted(state.driver)
    # To the packages' part of the transaction: all of them go, and none is to come.
    change = DriverChange({}, going, version)
    if going:
        refuse_more_than_the_driver(going, manager.simulation(change))
    yield from emptied_for_driver(drain, version)
    yield transaction_command(
        transaction,
        target,
        runfile=file.path,
        sha256=file.sha256,
        upstream=version,
        kernel=kernel or "",
        install=" ".join(install),
        arguments=" ".join(f"{name}-" for name in going),
        expected="",
        names="",
        rollback=rollback,
        proof=proof,
        **{**driver_variables(manager, state), "uninstall": " ".join(uninstall_arguments(version))},
        **manager.variables(change),
    )


def _is_there(driver: DriverState, version: str, flavour: str, dkms: bool, waits: bool) -> bool:
    """Say whether the driver is as desired but for the next kernel's module, where that is not the running one's."""
    if (driver.runfile, driver.packages, driver.library_version, driver.dkms) != (True, (), version, dkms):
        return False
    if driver.cuda_library != "" and not (driver.is_cuda_shadowed or str(driver.cuda_library).endswith(version)):
        return False
    return (driver.module_version, driver.module_flavour) == (version, flavour) or (
        waits and driver.module_version is None
    )
