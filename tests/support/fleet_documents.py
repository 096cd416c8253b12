"""SIMULATED documents of whole fleets, for the page's tests, pictures and benchmark; no machine was read for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from gpunode.base.comparison import DRAIN_FIRST, RUN
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.dcgm import decide as dcgm
from gpunode.components.driver.loading import LOADED_MODULE
from gpunode.components.imex import decide as imex
from gpunode.components.kubelet import decide as kubelet
from gpunode.components.mig import decide as mig
from gpunode.components.power import decide as power
from gpunode.components.runtimes.containerd.findings import SYSTEMD_CGROUP
from gpunode.components.runtimes.docker import decide as docker
from gpunode.fleet.access.errors import CONNECTION
from gpunode.fleet.call import Call
from gpunode.fleet.reports.document import document
from gpunode.fleet.reports.run_end import refusal_finding
from gpunode.node.preflight.cuda import DRIVER_TOO_OLD
from gpunode.node.verdict import judge
from gpunode.system import health
from tests.support.verify import GOOD, SETTINGS

AT = datetime(2026, 1, 15, 12, tzinfo=UTC)
VERSION = "0.1.0"
CALL = Call("inventories/prod.py")
# Of components that a small node's settings do not ask for: (declaration, name of the one of several, value).
_MORE = (
    (imex.DOMAIN, None, "rack1"),
    (mig.INSTANCES, "1", "2g.20gb ×3"),
    (power.POWER_LIMIT, "0", "600 W"),
    (docker.VALUES["DefaultRuntime"], None, "nvidia"),
    (kubelet.SETTING, "cpuManagerPolicy", "static"),
    (dcgm.SERVICE, "nvidia-dcgm", "active"),
    (health.NO_XIDS, None, "none"),
)


def good() -> tuple[Finding, ...]:
    """Return the findings of a good node: the real judge's findings, and some of other components."""
    judged = tuple(item for item in judge(SETTINGS, GOOD) if item.finding_class is FindingClass.OK and not item.cause)
    more = tuple(message.finding(FindingClass.OK, value, value, of=of) for message, of, value in _MORE)
    return judged + more


STALE = replace(
    LOADED_MODULE.finding(
        FindingClass.REBOOT_PENDING,
        "580.82.07",
        "580.95.05",
        cause="the module in memory is older than the one on disk",
        remedy="reboot the node",
        disruption=Disruption.reboot,
    ),
    since="2026-01-12T09:30:00Z",
)
EDITED = SYSTEMD_CGROUP.finding(
    FindingClass.DRIFT,
    "false",
    "true",
    of="nvidia",
    cause="/etc/containerd/config.toml was edited by hand",
    remedy=RUN,
    source="containerd's CRI configuration",
    disruption=Disruption.restart,
)
WAITS = replace(
    kubelet.SETTING.finding(
        FindingClass.RESTART_PENDING,
        "none",
        "static",
        of="cpuManagerPolicy",
        cause="3 containers run, and disruption.allow is 'nothing'",
        remedy=DRAIN_FIRST,
        disruption=Disruption.restart,
    ),
    since="2026-01-14T22:05:00Z",
)
LIMIT = power.POWER_LIMIT.finding(
    FindingClass.DRIFT,
    "700 W",
    "600 W",
    of="3",
    cause="another program raised it with nvidia-smi",
    remedy=RUN,
    disruption=Disruption.nothing,
)
LAYOUT = mig.INSTANCES.finding(
    FindingClass.DRIFT,
    "3g.40gb, 3g.40gb",
    "1g.10gb ×7",
    of="0",
    cause="another layout",
    remedy=RUN,
    disruption=Disruption.reset,
)
_TOO_OLD = DRIVER_TOO_OLD(
    release="13.0", minimum="580.65.06", compatibility="minor", desired="branch 550", branch="580", source="notes"
)
CUDA = refusal_finding(_TOO_OLD)
SICK = health.XID.finding(
    FindingClass.ERROR,
    "Xid 79 of 0000:85:00.0",
    "no critical Xid",
    cause="the GPU does not answer",
    remedy="power-cycle the machine (`ipmitool chassis power cycle`), then look again with `gpunode drift`",
)
GONE = CONNECTION.finding(
    FindingClass.UNREACHABLE, "none", "ssh", cause="timed out after 120 s", remedy="check address and network"
)
REMAPPED = health.WARNINGS.finding(
    FindingClass.OK,
    "1 row remapped on GPU 2",
    "no warning",
    cause="one row was remapped; more of them mean a GPU that goes bad",
    remedy="watch it",
)


def healthy(names: int = 1000) -> list[str]:
    """Return names of hosts: gpu-0001 to gpu-1000."""
    return [f"gpu-{number:04}" for number in range(1, names + 1)]


def reports(number: int = 1000) -> tuple[NodeReport, ...]:
    """Return a fleet's reports: most hosts are good; each kind of trouble is there, on racks and on single hosts."""
    random.seed(7)
    names, usual = healthy(number), good()
    bad: dict[str, tuple[Finding, ...]] = {}
    for name in names[int(number * 0.24) : int(number * 0.264)]:
        bad[name] = (STALE,)
    for name in names[int(number * 0.5) : int(number * 0.512)]:
        bad[name] = (WAITS,)
    for name, found in zip(
        random.sample([name for name in names if name not in bad], min(number // 8, 31)), _troubles(), strict=False
    ):
        bad[name] = found
    return tuple(NodeReport(name, _with(usual, bad.get(name, ()))) for name in names)


def all_different(number: int = 1000) -> tuple[NodeReport, ...]:
    """Return a fleet in which no two hosts are alike: each has trouble with values of its own, in six components."""
    usual = good()
    kinds = (STALE, EDITED, WAITS, LIMIT, LAYOUT, CUDA)
    return tuple(
        NodeReport(
            name,
            _with(usual, tuple(_own(item, name, at) for item in kinds)),
        )
        for at, name in enumerate(healthy(number))
    )


def fleet(number: int = 1000) -> dict[str, Any]:
    """Return the document of `reports`."""
    return document(reports(number), CALL, VERSION, AT)


def _own(item: Finding, name: str, at: int) -> Finding:
    """Return a finding with values that no other host has."""
    return replace(item, actual=f"{item.actual} {at * 7919 % 104729:x}", cause=f"{item.cause} on {name}")


def _troubles() -> Iterator[tuple[Finding, ...]]:
    yield from [(GONE,)] * 3
    yield (SICK,)
    yield from [(CUDA,)] * 2
    yield from [(EDITED,)] * 7
    yield (EDITED, LIMIT)
    yield (EDITED, WAITS, STALE)
    yield from [(LIMIT,)] * 4
    yield from [(LAYOUT,)] * 3
    yield from [(REMAPPED,)] * 6
    yield from [(LIMIT, REMAPPED)] * 2


def _with(usual: tuple[Finding, ...], bad: tuple[Finding, ...]) -> tuple[Finding, ...]:
    if GONE in bad:
        return bad
    order = list(dict.fromkeys(item.component for item in usual))
    return tuple(sorted(bad + usual, key=lambda item: order.index(item.component)))
