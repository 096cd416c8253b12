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
from gpunode.fleet.call import Call
from gpunode.fleet.reports.document import document
from gpunode.node.verdict import judge
from tests.support.verify import GOOD, SETTINGS

AT = datetime(2026, 1, 15, 12, tzinfo=UTC)
VERSION = "0.1.0"
CALL = Call("inventories/prod.py")
# Components beside those that a small node's settings ask for: (component, what, value).
_MORE = (
    ("imex", "IMEX domain", "rack1"),
    ("mig", "layout", "all-1g.10gb"),
    ("power", "power limit", "600 W"),
    ("docker", "default runtime", "nvidia"),
    ("kubelet", "CPU manager", "static"),
    ("dcgm", "DCGM exporter", "active"),
    ("node", "InfoROM", "valid"),
)


def good() -> tuple[Finding, ...]:
    """Return what is told of a good node: the real judge's findings, and some of other components."""
    judged = tuple(item for item in judge(SETTINGS, GOOD) if item.finding_class is FindingClass.OK and not item.cause)
    more = tuple(Finding(component, FindingClass.OK, what, value, value) for component, what, value in _MORE)
    return judged + more


STALE = Finding(
    "driver",
    FindingClass.REBOOT_PENDING,
    "loaded module",
    "580.82.07",
    "580.95.05",
    "the module in memory is older than the one on disk",
    "reboot the node",
    disruption=Disruption.reboot,
    since="2026-01-12T09:30:00Z",
)
EDITED = Finding(
    "containerd",
    FindingClass.DRIFT,
    "SystemdCgroup of runtime nvidia",
    "false",
    "true",
    "/etc/containerd/config.toml was edited by hand",
    RUN,
    "containerd's CRI configuration",
    Disruption.restart,
)
WAITS = Finding(
    "toolkit",
    FindingClass.RESTART_PENDING,
    "mode of the container runtime",
    "legacy",
    "cdi",
    "3 containers run, and disruption.allow is 'nothing'",
    DRAIN_FIRST,
    disruption=Disruption.restart,
    since="2026-01-14T22:05:00Z",
)
LIMIT = Finding(
    "power",
    FindingClass.DRIFT,
    "power limit of GPU 3",
    "700 W",
    "600 W",
    "somebody raised it with nvidia-smi",
    RUN,
    disruption=Disruption.nothing,
)
LAYOUT = Finding(
    "mig",
    FindingClass.DRIFT,
    "layout of GPU 0",
    "3g.40gb, 3g.40gb",
    "1g.10gb ×7",
    "another layout",
    RUN,
    disruption=Disruption.reset,
)
CUDA = Finding(
    "cuda",
    FindingClass.UNSUPPORTED,
    "CUDA and driver",
    "branch 550",
    "branch 580 or newer",
    "CUDA 13.0 needs driver 580 or newer",
    "ask for cuda.version 12.4, or drop driver.branch",
    "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html",
)
SICK = Finding(
    "node",
    FindingClass.ERROR,
    "GPU 5",
    "Xid 79: fallen off the bus",
    "no Xid error",
    "the GPU does not answer",
    "power-cycle the machine (`ipmitool chassis power cycle`), then look again with `gpunode drift`",
)
GONE = Finding(
    "node", FindingClass.UNREACHABLE, "connection", "none", "ssh", "timed out after 120 s", "check address and network"
)
REMAPPED = Finding(
    "node",
    FindingClass.OK,
    "remapped rows of GPU 2",
    "1 correctable",
    "none pending",
    "one row was remapped; more of them mean a GPU that goes bad",
    "watch it",
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
