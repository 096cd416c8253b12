"""The JSON document of `gpunode drift --json`: a stable, versioned form; docs/drift.md has its schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpunode.base.document import REPORT_SCHEMA as SCHEMA
from gpunode.base.document import head
from gpunode.base.findings import NodeReport, cluster_of, nodes_of, verdict, worst
from gpunode.fleet.call import SOME_CALL, Call


def document(
    reports: Iterable[NodeReport], call: Call = SOME_CALL, version: str | None = None, at: datetime | None = None
) -> dict[str, Any]:
    """Return the document: schema, gpunode's version, when, exit code, counts, and per host its class and findings.

    The cluster's are a key of their own, null where no host is a node of one. A command that asks none deletes it.
    call: how the command was called; version: gpunode's, of the one that runs where none is given; at: when the nodes
    had been read, now where it is not given. counts: class -> how many hosts, and how many findings, are of it;
    errors: none yet, for whoever prints it
    """
    reports = tuple(reports)
    nodes, cluster = nodes_of(reports), cluster_of(reports)
    hosts = Counter(worst(report.findings).value for report in nodes)
    findings = Counter(item.finding_class.value for report in reports for item in report.findings)
    counts = {"hosts": dict(sorted(hosts.items())), "findings": dict(sorted(findings.items()))}
    code = verdict(item for report in reports for item in report.findings)
    return {
        **head(SCHEMA, counts, code, call.to_json(), version, at),
        "errors": [],
        "cluster": None if cluster is None else {"name": cluster.name, **_findings(cluster)},
        "hosts": {
            report.name: {
                "at": report.at,
                "summary": None if report.summary is None else report.summary.to_json(),
                **_findings(report),
            }
            for report in nodes
        },
    }


def _findings(report: NodeReport) -> dict[str, Any]:
    return {"class": worst(report.findings).value, "findings": [item.to_json() for item in report.findings]}
