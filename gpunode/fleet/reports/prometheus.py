"""Metrics of `gpunode drift --prometheus`, for node_exporter's textfile collector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from gpunode.base.findings import FindingClass, NodeReport, nodes_of, worst
from gpunode.base.messages import Scope

# Labels of gpunode_node_info, which are fields of a summary.
_INFO = ("operating_system", "kernel", "driver", "driver_flavour", "cuda", "toolkit", "gpunode")


def metrics(reports: Iterable[NodeReport], checked_at: float, took: float = 0, gpunode: str | None = None) -> bytes:
    """Return the metrics in Prometheus' text format.

    checked_at: when, in seconds since the epoch; took: for how many seconds the nodes were read and judged
    gpunode: its version; None: the one that runs
    """
    reports = tuple(reports)
    registry = CollectorRegistry()
    for scope in sorted({Scope.NODE, *(report.scope for report in reports)}, reverse=True):
        _findings([report for report in reports if report.scope is scope], scope, registry)
    _waiting(nodes_of(reports), registry)
    _summaries(nodes_of(reports), registry)
    built = Gauge("gpunode_build_info", "1; gpunode's version.", ["version"], registry=registry)
    built.labels(gpunode or version("gpunode")).set(1)
    checked = Gauge("gpunode_drift_checked_timestamp_seconds", "When the nodes were checked.", registry=registry)
    checked.set(checked_at)
    duration = Gauge("gpunode_drift_duration_seconds", "How long it took to read and judge them.", registry=registry)
    duration.set(took)
    return generate_latest(registry)


def _findings(reports: Iterable[NodeReport], scope: Scope, registry: CollectorRegistry) -> None:
    """Add what is found of the nodes, or of the cluster: gpunode_cluster_state has the label cluster, and so on."""

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"gpunode_{scope}_{name}", text.format(scope), [scope, *labels], registry=registry)

    state = gauge("state", "1 for the worst class among a {}'s findings, 0 for the others.", "class")
    count = gauge("findings", "How many findings of a component are of a class.", "component", "class")
    of_each = "1 for each finding that differs from what is desired, or is not known."
    bad = gauge("finding", of_each, "component", "what", "class", "code")
    for report in reports:
        gravest = worst(report.findings)
        for kind in FindingClass:
            state.labels(report.name, kind.value).set(int(kind is gravest))
        numbers = Counter((item.component, item.finding_class) for item in report.findings)
        for (component, kind), number in numbers.items():
            count.labels(report.name, component, kind.value).set(number)
        for item in report.findings:
            if item.finding_class is not FindingClass.OK:
                bad.labels(report.name, item.component, item.what, item.finding_class.value, item.code).set(1)


def _waiting(reports: Iterable[NodeReport], registry: CollectorRegistry) -> None:
    waiting = Gauge(
        "gpunode_node_waiting_since_timestamp_seconds",
        "Since when a node waits for a restart or a boot, for the longest that it does.",
        ["node", "class"],
        registry=registry,
    )
    for report in reports:
        since: dict[str, float] = {}
        for item in report.findings:
            if (at := _seconds(item.since)) is not None:
                since[item.finding_class.value] = min(at, since.get(item.finding_class.value, at))
        for waits, at in since.items():
            waiting.labels(report.name, waits).set(at)


def _summaries(reports: Iterable[NodeReport], registry: CollectorRegistry) -> None:
    info = Gauge(
        "gpunode_node_info",
        "1; what a node is: its system, versions, the models of its GPUs, and the gpunode of its last whole run.",
        ["node", *_INFO, "gpu_model"],
        registry=registry,
    )
    on_bus = Gauge("gpunode_node_pci_gpus", "GPUs on the PCI bus.", ["node"], registry=registry)
    usable = Gauge("gpunode_node_gpus", "GPUs that nvidia-smi shows.", ["node"], registry=registry)
    for report in reports:
        if (found := report.summary) is not None:
            values = (getattr(found, field) or "" for field in _INFO)
            info.labels(report.name, *values, ", ".join(found.gpu_models)).set(1)
            on_bus.labels(report.name).set(found.gpus_on_bus)
            usable.labels(report.name).set(found.gpus)


def _seconds(since: str | None) -> float | None:
    """Return a time such as 2026-01-31T12:00:00Z in seconds since the epoch; None where it says none."""
    try:
        return None if since is None else datetime.fromisoformat(since).timestamp()
    except ValueError:
        return None
