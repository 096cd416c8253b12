"""The JSON document of `gpunode drift --json`: a stable, versioned form; docs/drift.md has its schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from gpunode.base.document import COUNT, MAYBE, TEXT, TEXTS, document_schema, each, head, objects
from gpunode.base.findings import Finding, FindingClass, NodeReport, verdict, worst

# Raised when a key goes away or changes its meaning; a new key raises nothing.
SCHEMA = 2


def document(
    reports: Iterable[NodeReport],
    version: str | None = None,
    at: datetime | None = None,
    inventory: str | None = None,
    limit: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the document: schema, gpunode's version, when, exit code, counts, and per host its class and findings.

    version: gpunode's, of the one that runs where none is given; at: when the nodes had been read, now where it is not
    given; inventory: its path as it was given; limit, settings: the patterns behind --limit, and the words behind --set
    as they may be shown; counts: class -> how many hosts, and how many findings, are of it
    """
    reports = tuple(reports)
    hosts = Counter(worst(report.findings).value for report in reports)
    findings = Counter(item.finding_class.value for report in reports for item in report.findings)
    counts = {"hosts": dict(sorted(hosts.items())), "findings": dict(sorted(findings.items()))}
    code = verdict(item for report in reports for item in report.findings)
    of = {"inventory": inventory, "limit": list(limit), "set": list(settings)}
    return {
        **head(SCHEMA, counts, code, of, version, at),
        "hosts": {
            report.name: {
                "class": worst(report.findings).value,
                "findings": [item.to_json() for item in report.findings],
            }
            for report in reports
        },
    }


def schema() -> dict[str, Any]:
    """Return the JSON schema of the document."""
    classes = [item.value for item in FindingClass]
    fields = Finding("driver", FindingClass.OK, "loaded module").to_json()
    count = {"type": "object", "propertyNames": {"enum": classes}, "additionalProperties": COUNT}
    finding = dict.fromkeys(fields, MAYBE) | {
        "code": TEXT,
        "component": TEXT,
        "what": TEXT,
        "class": {"enum": classes},
    }
    items = {"type": "object", "required": sorted(finding), "properties": finding}
    host = objects({"class": {"enum": classes}, "findings": {"type": "array", "items": items}})
    counts, of = {"hosts": count, "findings": count}, {"inventory": MAYBE, "limit": TEXTS, "set": TEXTS}
    return document_schema(SCHEMA, counts, (0, 1, 2), {"hosts": each(host)}, of)


def apply_schema() -> dict[str, Any]:
    """Return the JSON schema of what `gpunode apply` prints: the same, and which hosts were not judged, and why."""
    found = schema()
    found["properties"] |= {"left_alone": each(TEXT), "log": MAYBE}
    found["required"] += ["left_alone", "log"]
    return found
