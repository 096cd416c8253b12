"""Whether a node may be rebooted, and how a new boot is told from the old one. Pure: no node, no pyinfra."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from gpunode.base.findings import FindingClass
from gpunode.base.probe_output import values
from gpunode.base.reading import ParseError, Reading
from gpunode.components.driver import DriverState
from gpunode.components.driver.next_boot import next_boot
from gpunode.node import Node
from gpunode.packages.families.wording import wording

# For what a reboot was asked, and in which boot; kept until it has helped, so that it is not asked for again.
RECORD = "/var/lib/gpunode/reboot"
# Seconds: between two looks at a node that goes down or comes up, for one look, and for systemd to start the rest.
INTERVAL, LOOK, SETTLING = 1.0, 20.0, 120.0
_STARTING = ("initializing", "starting")


@dataclass(frozen=True)
class RunningBoot(Reading):
    """Hold what tells one boot of a node from another, and how far it is.

    boot_id: the kernel's. A container has that of its host, whatever becomes of the container
    init_started: when pid 1 began, in microseconds of the kernel's clock; a machine may show the same in each boot
    container: whether this is a container, which has no kernel of its own
    system: systemd's word: initializing, starting, running, degraded, stopping and others
    packaging: whether packages are being installed, or that was interrupted: a kernel may be half there
    tried: for what gpunode rebooted the node in an earlier boot, without success; None where there is no such thing
    """

    boot_id: str
    init_started: int
    container: bool = False
    system: str = "running"
    tried: str | None = None
    packaging: bool = False

    def is_same(self, other: RunningBoot) -> bool:
        """Say whether both are one boot."""
        return (self.boot_id, self.init_started) == (other.boot_id, other.init_started)

    def attempt(self, purpose: str) -> str:
        """Return the record of a reboot out of this boot for one thing, a word, as `tried` is made from it."""
        return f"{purpose} {self.boot_id} {self.init_started}"


class NotBack(Exception):
    """Say what was seen of a node that did not come back in time."""


def target(driver: DriverState) -> str:
    """Return what a reboot is to load, as one word: 580.95.05/open, or none."""
    if driver.module_version is None:
        return "none"
    return f"{driver.module_version}/{driver.module_flavour or 'unknown'}"


def parse_running_boot(lines: list[str]) -> RunningBoot:
    """Parse the running boot probe's lines (facts/reboot.py)."""
    found = values(lines)
    boot_id, started = found.get("boot_id"), found.get("UserspaceTimestampMonotonic", "")
    if not boot_id or not started.isdecimal():
        raise ParseError(
            "the node did not tell boot_id and the start of its pid 1; one boot cannot be told from another"
        )
    before = found.get("attempt", "").split(" ")
    came_later = len(before) == 3 and before[1:] != [boot_id, started]
    return RunningBoot(
        boot_id=boot_id,
        init_started=int(started),
        container=found.get("container") == "yes",
        system=found.get("SystemState", "unknown"),
        tried=before[0] if came_later else None,
        packaging=found.get("packaging") == "busy",
    )


def obstacles(node: Node, running: RunningBoot, purpose: str | None = None, absent: bool = False) -> tuple[str, ...]:
    """Return why the node must not be rebooted, each with its remedy; none where it may.

    purpose: what for, a word; by itself the driver on its disk, `target`
    absent: no driver is to be loaded, so that the next boot need not have one
    """
    words = wording(node.operating_system)
    found = [
        f"{item.what} is {item.actual}, desired {item.desired} ({item.cause}). Remedy: {item.remedy}"
        for item in (() if absent else next_boot(node.boot, node.driver, node.operating_system))
        if item.finding_class is not FindingClass.OK
    ]
    if not absent and node.boot.next_kernel is None and not running.container:
        found.append(
            "which kernel boots next is not known, nor so whether it has the driver: no /boot/vmlinuz-* is there. "
            "Remedy: mount /boot, or reboot the node by hand"
        )
    if running.packaging:
        found.append(
            "packages are being installed, or that was interrupted, and the next kernel may be half there. Remedy: "
            f"wait until it has ended, or see {words.unfinished}, and run again"
        )
    driver = target(node.driver)
    if purpose not in (None, driver) and running.tried == purpose:
        found.append(
            f"the node was rebooted for {purpose} before, and that did not help. Remedy: remove {RECORD} where the "
            "cause is mended, and run again"
        )
    elif running.tried == driver and purpose in (None, driver):
        found.append(
            f"the node was rebooted for {running.tried} before, and {node.driver.loaded_version} was loaded again. "
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
