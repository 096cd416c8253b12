"""The boot that is running, and what tells it from another."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe_output import values
from gpunode.base.reading import ParseError, Reading

# For what a reboot was asked, and in which boot; kept until it has helped, so that it is not asked for again.
RECORD = "/var/lib/gpunode/reboot"


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


def parse_running_boot(lines: list[str]) -> RunningBoot:
    """Parse the running boot probe's lines (facts/system.py)."""
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
