"""Whether a node may be rebooted, and whether it came back with a new boot. Pure: no node, no pyinfra."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpunode.base.findings import FindingClass
from gpunode.components.driver.next_boot import next_boot
from gpunode.components.driver.state import DriverState
from gpunode.packages.families.wording import wording
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.running_boot import RECORD, RunningBoot

# Seconds: between two looks at a node that goes down or comes up, for one look, and for systemd to start the rest.
INTERVAL, LOOK, SETTLING = 1.0, 20.0, 120.0
_STARTING = ("initializing", "starting")


class NotBack(Exception):
    """Say what was seen of a node that did not come back in time."""


def target(driver: DriverState) -> str:
    """Return what a reboot is to load, as one word: 580.95.05/open, or none."""
    if driver.module_version is None:
        return "none"
    return f"{driver.module_version}/{driver.module_flavour or 'unknown'}"


def obstacles(
    boot: Boot,
    driver: DriverState,
    system: OperatingSystem,
    running: RunningBoot,
    purpose: str | None = None,
    absent: bool = False,
) -> tuple[str, ...]:
    """Return why the node must not be rebooted, each with its remedy; none where it may.

    purpose: what for, a word; by itself the driver on its disk, `target`
    absent: no driver is to be loaded, so that the next boot need not have one
    """
    words, on_disk = wording(system), target(driver)
    found = [
        f"{item.what} is {item.actual}, desired {item.desired} ({item.cause}). Remedy: {item.remedy}"
        for item in (() if absent else next_boot(boot, driver, system))
        if item.finding_class is not FindingClass.OK
    ]
    if not absent and boot.next_kernel is None and not running.container:
        found.append(
            "which kernel boots next is not known, nor so whether it has the driver: no /boot/vmlinuz-* is there. "
            "Remedy: mount /boot, or reboot the node by hand"
        )
    if running.packaging:
        found.append(
            "packages are being installed, or that was interrupted, and the next kernel may be half there. Remedy: "
            f"wait until it has ended, or see {words.unfinished}, and run again"
        )
    if purpose not in (None, on_disk) and running.tried == purpose:
        found.append(
            f"the node was rebooted for {purpose} before, and that did not help. Remedy: remove {RECORD} where the "
            "cause is mended, and run again"
        )
    elif running.tried == on_disk and purpose in (None, on_disk):
        found.append(
            f"the node was rebooted for {running.tried} before, and {driver.loaded_version} was loaded again. "
            f"Remedy: look for the old module in the initramfs (`{words.initramfs}`), remove {RECORD}, and run again"
        )
    return tuple(found)


def awaited(
    before: RunningBoot,
    look: Callable[[float], RunningBoot | str],
    timeout: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> RunningBoot:
    """Return the new boot once it answers and has started its services; raise NotBack where none answers in time.

    before: the boot that is to end
    look: ask the node on a new connection, for so many seconds at most; a text says why it did not answer
    timeout: seconds for all of it. A new boot that is still starting then, or after SETTLING, is as good as it gets
    """
    began = clock()
    new_since: float | None = None
    went_down = False
    found: RunningBoot | str = "it was not asked"
    while (left := began + timeout - clock()) > 0:
        found = look(min(left, LOOK))
        now = clock()
        if isinstance(found, str):
            went_down = True
        elif not found.is_same(before):
            new_since = now if new_since is None else new_since
            if found.system not in _STARTING or now - new_since >= SETTLING:
                return found
        sleep(INTERVAL)
    if isinstance(found, RunningBoot):
        if not found.is_same(before):
            return found
        told = "went away for a while, and the boot of before answers again" if went_down else "never went down"
        raise NotBack(
            f"the node {told}: no new boot within {timeout:.0f} s. Look at its console and at `systemctl list-jobs`: "
            "something holds the shutdown up"
        )
    told = "answered from a new boot, and then no more" if new_since is not None else "did not answer again"
    raise NotBack(f"the node {told} within {timeout:.0f} s; last: {found}. Look at its console: it may have booted")
