"""Documents as drift and apply print them, of hosts that nobody read, for tests of what a history makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from gpunode.base.findings import ExitCode, Finding, FindingClass, NodeReport
from gpunode.cli.apply import document as apply_document
from gpunode.fleet.call import Call
from gpunode.fleet.reports.document import document as drift_document

BEGIN = datetime(2026, 1, 14, tzinfo=UTC)
# Not there: a history calls one that is there by its whole path.
INVENTORY = "inventories/berlin.py"
VERSION = "0.1.0"

GOOD = Finding("driver", FindingClass.OK, "loaded module", "580.95.05", "580.95.05", code="driver.loaded-module")
OLD = Finding(
    "driver",
    FindingClass.DRIFT,
    "loaded module",
    "570.10",
    "580.95.05",
    "held back",
    "run deploys/gpu_node.py again",
    code="driver.loaded-module",
)
OLDER = Finding(
    "driver", FindingClass.REBOOT_PENDING, "loaded module", "560.1", "580.95.05", code="driver.loaded-module"
)
UNREACHED = Finding("node", FindingClass.UNREACHABLE, "connection", "none", "ssh", code="node.connection")
NOT_UNDERSTOOD = Finding("node", FindingClass.ERROR, "state", "not read", "read", code="node.state")
UNKNOWN = Finding("mig", FindingClass.ERROR, "layout", "unknown", "all-1g.10gb", code="mig.mig-configuration")
REFUSED = Finding(
    "driver",
    FindingClass.ERROR,
    "preflight",
    "12.8",
    "12.4",
    "CUDA 12.8 needs branch 570",
    code="preflight.cuda-driver-too-old",
)

Hosts = Mapping[str, Finding | tuple[Finding, ...]]


def at(minute: float) -> datetime:
    """Return a minute of the tests' day."""
    return BEGIN + timedelta(minutes=minute)


def collected(minute: float, hosts: Mapping[str, tuple[float, tuple[Finding, ...]]]) -> dict[str, Any]:
    """Return what agent collect prints at a minute; hosts: when each was read by its agent, and what was found."""
    reports = [NodeReport(name, found, at=f"{at(own):%Y-%m-%dT%H:%M:%SZ}") for name, (own, found) in hosts.items()]
    found = drift_document(reports, Call(INVENTORY), VERSION, at(minute))
    del found["cluster"]
    return found


def document(minute: float, hosts: Hosts, limit: tuple[str, ...] = (), inventory: str = INVENTORY) -> dict[str, Any]:
    """Return what drift prints at a minute."""
    return drift_document(_reports(hosts), Call(inventory, limit), VERSION, at(minute))


def applied(minute: float, hosts: Hosts, inventory: str = INVENTORY) -> dict[str, Any]:
    """Return what apply prints at a minute."""
    found = apply_document(Call(inventory), _reports(hosts), {}, ExitCode.GOOD)
    return {**found, "at": at(minute).isoformat()}


def _reports(hosts: Hosts) -> list[NodeReport]:
    return [NodeReport(name, told if isinstance(told, tuple) else (told,)) for name, told in hosts.items()]
