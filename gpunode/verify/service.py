"""The service of a container runtime: does it run, does it stay up, and what is to be done where not?"""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.containerd.state import Containerd
from gpunode.docker.state import Docker
from gpunode.service import RESTARTING
from gpunode.unit import unmask
from gpunode.verify.comparison import RUN

RUNNING = "running"


@dataclass(frozen=True)
class ServiceVerdict:
    """Hold what a service does, or whether it starts at boot; where that is not as it should be, why and what to do."""

    found: str
    remedy: str = RUN
    cause: str | None = None


def service_verdict(unit: str, there: Containerd | Docker) -> ServiceVerdict:
    """Return what a runtime's unit does: `running` where it runs and stays up."""
    service = there.service
    said = f"; its journal says: {' | '.join(service.said)}" if service.said else ""
    mend = f"look at `journalctl -u {unit}` on the node, mend what ends it, `systemctl restart {unit}`, and {RUN}"
    if service.restarting:
        times = f", {service.restarts} times so far" if service.restarts > 1 else ""
        return ServiceVerdict(RESTARTING, mend, f"it ends by itself, and systemd starts it again{times}{said}")
    if there.active:
        return ServiceVerdict(RUNNING)
    if there.masked:
        return _masked(unit)
    return ServiceVerdict("failed", mend, f"it ended by itself{said}") if service.failed else ServiceVerdict("stopped")


def boot_verdict(unit: str, there: Containerd | Docker) -> ServiceVerdict:
    """Return whether a runtime's unit starts at boot: yes, no or masked."""
    if there.masked and not there.enabled:
        return _masked(unit)
    return ServiceVerdict("yes" if there.enabled else "no")


def _masked(unit: str) -> ServiceVerdict:
    return ServiceVerdict("masked", f"{unmask(unit)}, and {RUN}", "somebody masked it, which forbids to start it")
