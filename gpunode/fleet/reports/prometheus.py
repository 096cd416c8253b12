"""Metrics of `gpunode drift --prometheus`, for node_exporter's textfile collector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from gpunode.base.findings import FindingClass, NodeReport, worst
from gpunode.fleet.reports.whole_file import write_whole


def metrics(reports: Iterable[NodeReport], checked_at: float) -> bytes:
    """Return the metrics in Prometheus' text format; `checked_at` is in seconds since the epoch."""
    registry = CollectorRegistry()
    state = Gauge(
        "gpunode_node_state",
        "1 for the worst class among a node's findings, 0 for the others.",
        ["node", "class"],
        registry=registry,
    )
    count = Gauge(
        "gpunode_node_findings",
        "How many findings of a component are of a class.",
        ["node", "component", "class"],
        registry=registry,
    )
    bad = Gauge(
        "gpunode_node_finding",
        "1 for each finding that is not as desired.",
        ["node", "component", "what", "class"],
        registry=registry,
    )
    checked = Gauge("gpunode_drift_checked_timestamp_seconds", "When the nodes were checked.", registry=registry)
    checked.set(checked_at)
    for report in reports:
        gravest = worst(report.findings)
        for kind in FindingClass:
            state.labels(report.name, kind.value).set(int(kind is gravest))
        numbers = Counter((item.component, item.finding_class) for item in report.findings)
        for (component, kind), number in numbers.items():
            count.labels(report.name, component, kind.value).set(number)
        for item in report.findings:
            if item.finding_class is not FindingClass.OK:
                bad.labels(report.name, item.component, item.what, item.finding_class.value).set(1)
    return generate_latest(registry)


def write_metrics(reports: Iterable[NodeReport], path: Path, checked_at: float) -> None:
    """Write the metrics as a whole, or leave the file as it was; raise OSError."""
    write_whole(path, metrics(reports, checked_at))
