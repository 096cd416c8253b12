"""Reboots: only where one is needed, allowed and safe, and with proof of a new boot.

pyinfra's server.reboot (3.10) is fooled by a machine that is slow to go down: it connects to the old boot, and fails
when that connection dies. It also takes a short uptime for its proof, which a container never has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import gevent  # type: ignore[import-untyped]
from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State, StringCommand
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import clear_askpass_cache

from gpunode.base.disruption import Drain
from gpunode.base.errors import in_words
from gpunode.base.shell_file import script_file
from gpunode.components.driver.loading import PARAMETERS, Act, Loading, decide_loading, decide_removal, step_of
from gpunode.components.driver.state import DriverState
from gpunode.facts.base import parsed
from gpunode.facts.system import Boot, OperatingSystem
from gpunode.facts.system import RunningBoot as RunningBootFact
from gpunode.node.reboot import NotBack, awaited, obstacles, target
from gpunode.operations.driver import driver_state
from gpunode.operations.failure import OperationRefused, failed, node_operation, read_fact
from gpunode.operations.node_lock import is_pull
from gpunode.operations.script import script_command
from gpunode.packages.families.wording import wording
from gpunode.system.running_boot import RECORD, RunningBoot, parse_running_boot

_REBOOT = script_file("reboot")
# When it has helped.
FORGET = 'rm -f "$record"'


@node_operation
def rebooted(
    allowed: bool, timeout: int, parameters: Mapping[str, str], absent: bool = False, drain: Drain | None = None
) -> Iterator[Any]:
    """Boot the node into the driver on its disk, where another one is loaded, or the same with other parameters.

    + allowed: whether disruption.allow is reboot; if not, the node is left as it is, with the reboot pending
    + timeout: seconds within which it must answer from the new boot; then it has failed
    + absent: no driver is to be there: boot where one is loaded that has been removed
    """
    driver = driver_state()
    if not (difference := _difference(driver, parameters, absent)):
        # It helped, and the run that asked for it did not live to see that.
        if driver.booted_for == target(driver) and driver.loaded_version == driver.module_version:
            host.log("the boot that an earlier run asked for has helped")
            yield script_command(FORGET, record=RECORD)
            return
        host.noop("no driver is loaded that was removed" if absent else "the driver on disk is loaded, or none")
        return
    if not allowed:
        host.noop(f"reboot pending: {difference}, and disruption.allow is not reboot")
        return
    words = wording(read_fact(OperatingSystem, "the operating system"))
    if driver.is_outlived(read_fact(Boot, "what boots next")):
        host.noop(f"reboot pending: {difference}, as the boot before left it; one more would not change that")
        return
    yield from new_boot(target(driver), timeout, absent, drain)
    after = driver_state()
    if difference := _difference(after, parameters, absent):
        raise OperationRefused(
            f"the node has rebooted, and still {difference}. It is not rebooted for that again. Remedy: look for "
            f"the old module in the initramfs (`{words.initramfs}` makes it anew), and remove "
            f"{RECORD} where that is mended"
        )
    yield script_command(FORGET, record=RECORD)


def new_boot(purpose: str, timeout: int, absent: bool = False, drain: Drain | None = None) -> Iterator[Any]:
    """Boot the node and wait for its new boot; raise OperationRefused where it must not be booted.

    + purpose: one word for what the boot is for; where one for that did not help, FORGET was not run, and none follows
    + timeout: seconds within which the node must answer from the new boot
    + absent: no driver is to be loaded by it
    """
    before = read_fact(RunningBootFact, "which boot is running")
    boot = read_fact(Boot, "what boots next")
    system = read_fact(OperatingSystem, "the operating system")
    reasons = obstacles(boot, driver_state(), system, before, purpose, absent)
    connector = host.connector
    if not isinstance(connector, SSHConnector) and not (isinstance(connector, LocalConnector) and is_pull()):
        reasons += ("it is not reached by SSH, so that nothing would wait for it. Remedy: reboot it by hand",)
    if reasons:
        raise OperationRefused("\n".join(f"not rebooted: {reason}" for reason in reasons))
    if drain is not None:
        yield from drain("the node is to be rebooted")
    yield script_command(_REBOOT, record=RECORD, attempt=before.attempt(purpose))
    if isinstance(connector, SSHConnector):
        yield FunctionCommand(_wait, [connector, before, timeout], {})
    else:
        yield FunctionCommand(_go_down, [timeout], {})


def _difference(driver: DriverState, parameters: Mapping[str, str], absent: bool) -> str:
    """Return what a boot would change of the loaded driver, as it is decided; empty where nothing."""
    desired = Loading(parameters=parameters)
    decision = decide_removal(desired.allowed, driver) if absent else decide_loading(desired, driver)
    if (step := step_of(decision, Act.BOOT)) is None:
        return ""
    actual, to_be = step.settles[0].actual, step.settles[0].desired
    if absent:
        return f"{actual} is loaded, and the driver has been removed"
    if step.settles[0].code == PARAMETERS.code:
        return f"the module is loaded with {actual}, and /etc/modprobe.d says otherwise"
    return f"{actual} is loaded and {to_be} is on disk"


def _wait(state: State, host: Host, connector: SSHConnector, before: RunningBoot, timeout: int) -> bool:
    """Let go of the connection, and wait for a new boot; say what was seen where none comes."""
    host.log(f"reboots, and has {timeout} s to answer from a new boot")
    began = time.monotonic()
    # The file went with the boot; to remove it over a connection that dies would hang.
    clear_askpass_cache(host)
    host.disconnect()
    try:
        awaited(before, lambda seconds: _look(connector, seconds), timeout)
    except NotBack as reason:
        _hang_up(connector)
        return failed(host, str(reason))
    host.connected = True
    host.log(f"answers from a new boot after {time.monotonic() - began:.0f} s")
    return True


def _go_down(state: State, host: Host, timeout: int) -> bool:
    """Do no more on this machine, which ends this run as it goes down: its next pull goes on from there."""
    host.log("reboots; the pull after that goes on")
    gevent.sleep(timeout)
    reason = f"the node was to reboot, and did not go down within {timeout} s: look at `systemctl list-jobs` on it"
    return failed(host, reason)


def _look(connector: SSHConnector, seconds: float) -> RunningBoot | str:
    """Return which boot answers on a new connection, which then stays open, or why none does."""
    _hang_up(connector)
    reason = f"no answer within {seconds:.0f} s"
    try:
        # False: it ends the block without an error, and no `except` of pyinfra's own can take it for a failed attempt.
        with gevent.Timeout(seconds, False):
            connector.connect()
            _, output = connector.run_shell_command(StringCommand(RunningBootFact().command()))
            return parsed("the running boot", parse_running_boot, output.stdout_lines)
    # A connection that is cut in its middle raises whatever it likes.
    except Exception as error:
        reason = in_words(error)
    _hang_up(connector)
    return reason


def _hang_up(connector: SSHConnector) -> None:
    if connector.client is not None:
        connector.client.close()
