"""The JSON document of `gpunode drift --json`: a stable, versioned form; docs/drift.md has its schema."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from gpunode.base.findings import Finding, FindingClass, NodeReport, verdict, worst

# Raised when a key goes away or changes its meaning; a new key raises nothing.
SCHEMA = 2


def document(
    reports: Iterable[NodeReport],
    version: str,
    at: datetime,
    inventory: str | None = None,
    limit: Sequence[str] = (),
    settings: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the document: schema, gpunode's version, when, exit code, counts, and per host its class and findings.

    at: when the nodes had been read; inventory: its path as it was given; limit, settings: the patterns behind --limit,
    and the words behind --set as they may be shown; counts: class -> how many hosts, and how many findings, are of it
    """
    reports = tuple(reports)
    hosts = Counter(worst(report.findings).value for report in reports)
    findings = Counter(item.finding_class.value for report in reports for item in report.findings)
    return {
        "schema": SCHEMA,
        "gpunode": version,
        "inventory": inventory,
        "limit": list(limit),
        "set": list(settings),
        "at": at.astimezone(UTC).isoformat(timespec="seconds"),
        "counts": {"hosts": dict(sorted(hosts.items())), "findings": dict(sorted(findings.items()))},
        "exit_code": int(verdict(item for report in reports for item in report.findings)),
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
    text: dict[str, Any] = {"type": ["string", "null"]}
    words = {"type": "array", "items": {"type": "string"}}
    count = {"type": "object", "propertyNames": {"enum": classes}, "additionalProperties": {"type": "integer"}}
    finding = dict.fromkeys(fields, text) | {
        "code": {"type": "string"},
        "component": {"type": "string"},
        "what": {"type": "string"},
        "class": {"enum": classes},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "required": ["schema", "gpunode", "inventory", "limit", "set", "at", "counts", "exit_code", "hosts"],
        "properties": {
            "schema": {"const": SCHEMA},
            "gpunode": {"type": "string"},
            "inventory": text,
            "limit": words,
            "set": words,
            "at": {"type": "string", "format": "date-time"},
            "counts": {
                "type": "object",
                "required": ["hosts", "findings"],
                "properties": {"hosts": count, "findings": count},
            },
            "exit_code": {"enum": [0, 1, 2]},
            "hosts": {
                "type": "object",
                "additionalProperties": {
                    "type": "object",
                    "required": ["class", "findings"],
                    "properties": {
                        "class": {"enum": classes},
                        "findings": {
                            "type": "array",
                            "items": {"type": "object", "required": sorted(finding), "properties": finding},
                        },
                    },
                },
            },
        },
    }
