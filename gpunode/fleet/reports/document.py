"""The JSON document of `gpunode drift --json`: a stable, versioned form; docs/drift.md has its schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gpunode.base.document import COUNT, ERRORS, MAYBE, OF_CALL, TEXT, TEXTS, document_schema, each, head, objects
from gpunode.base.document import REPORT_SCHEMA as SCHEMA
from gpunode.base.findings import Finding, FindingClass, NodeReport, cluster_of, nodes_of, verdict, worst
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


def schema(optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return the JSON schema of the document; optional: the keys that may be missing."""
    classes = [item.value for item in FindingClass]
    fields = Finding("", FindingClass.OK, "", code="").to_json()
    count = {"type": "object", "propertyNames": {"enum": classes}, "additionalProperties": COUNT}
    finding = dict.fromkeys(fields, MAYBE) | {
        "code": TEXT,
        "component": TEXT,
        "what": TEXT,
        "class": {"enum": classes},
    }
    items = {"type": "object", "required": sorted(finding), "properties": {**finding, "log": TEXT}}
    judged = {"class": {"enum": classes}, "findings": {"type": "array", "items": items}}
    host = objects({"at": MAYBE, "summary": _summary(), **judged})
    cluster = {"anyOf": [objects({"name": TEXT, **judged}), {"type": "null"}]}
    counts = {"hosts": count, "findings": count}
    keys = {"errors": ERRORS, "cluster": cluster, "hosts": each(host)}
    return document_schema(SCHEMA, counts, (0, 1, 2), keys, OF_CALL, optional)


def _summary() -> dict[str, Any]:
    """Return the schema of what a node is; null where it could not be read."""
    counts = dict.fromkeys(("gpus_on_bus", "gpus"), COUNT)
    texts = dict.fromkeys(("operating_system", "kernel"), TEXT)
    maybe = dict.fromkeys(("driver", "driver_flavour", "cuda", "toolkit", "gpunode"), MAYBE)
    return {"anyOf": [objects({**texts, **maybe, **counts, "gpu_models": TEXTS}), {"type": "null"}]}


def apply_schema() -> dict[str, Any]:
    """Return the JSON schema of what `gpunode apply` prints: the same, and which hosts were not judged, and why."""
    found = schema()
    found["properties"] |= {"left_alone": each(TEXT), "log": MAYBE}
    found["required"] += ["left_alone", "log"]
    return found
