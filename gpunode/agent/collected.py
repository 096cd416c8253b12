"""Reports that nodes' agents left, as a controller judges them: what they found, and whether they still pull. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from gpunode.base.document import AGENT_SCHEMA, REPORT_SCHEMA, UPDATE, newer
from gpunode.base.findings import Finding, FindingClass, NodeReport, finding_from
from gpunode.base.node_summary import summary_from
from gpunode.base.probe_output import decoded, values
from gpunode.base.reading import ParseError, Reading

_LOOK = "look at `systemctl status gpunode-agent.timer gpunode-agent` on the node"


@dataclass(frozen=True)
class Collected(Reading):
    """Hold whether a node has an agent, and what its report says; None where there is none."""

    installed: bool
    report: Mapping[str, Any] | None = None


def parse_report(lines: list[str]) -> Collected:
    """Parse `agent=yes` and `report=BASE64` (gpunode/agent/report.sh)."""
    found = values(lines)
    text = decoded(found, "report")
    if text is None:
        return Collected(found.get("agent") == "yes")
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"the agent's report is no JSON: {error}") from None
    if not isinstance(report, dict):
        raise ParseError("the agent's report is no JSON object")
    return Collected(found.get("agent") == "yes", report)


def judged(name: str, found: Collected, now: datetime, silent: timedelta) -> NodeReport:
    """Return what is known of a node by its agent's report; raise ParseError where that is none.

    silent: how old a report, and the last success, may be
    """
    if not found.installed:
        said = "the node has no agent"
        return NodeReport(name, (_bad("agent.none", "none", "installed", said, "install it: `gpunode agent install`"),))
    if found.report is None:
        return NodeReport(name, (_bad("agent.silent", "no report", "a report", "it has not pulled yet", _LOOK),))
    if reason := newer(found.report, AGENT_SCHEMA) or newer(found.report, REPORT_SCHEMA, "document_schema"):
        return NodeReport(name, (_bad("agent.newer", "unknown version", "readable", reason, UPDATE),))
    try:
        (host,) = found.report["hosts"].values()
        findings = tuple(map(finding_from, host["findings"]))
        summary = None if host["summary"] is None else summary_from(host["summary"])
        at = _time(found.report["at"])
        success = found.report["agent"]["last_success"]
        last = None if success is None else _time(success)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(f"the agent's report is not one: {type(error).__name__}: {error}") from None
    return NodeReport(name, (*findings, *_in_time(at, last, now, silent)), summary, f"{at:%Y-%m-%dT%H:%M:%SZ}")


def _in_time(at: datetime, last: datetime | None, now: datetime, silent: timedelta) -> tuple[Finding, ...]:
    limit = f"within {silent}"
    if now - at > silent:
        return (_bad("agent.silent", f"{at:%Y-%m-%d %H:%M} UTC", limit, "its last pull is too long ago", _LOOK),)
    if last is None or now - last > silent:
        actual = "never" if last is None else f"{last:%Y-%m-%d %H:%M} UTC"
        why = "its pulls did not come to what the bundle asks; the other findings say why"
        return (_bad("agent.no-success", actual, limit, why, "mend what the other findings tell"),)
    return (
        Finding("agent", FindingClass.OK, "last success", f"{last:%Y-%m-%d %H:%M} UTC", limit, code="agent.no-success"),
    )


def _bad(code: str, actual: str, desired: str, cause: str, remedy: str) -> Finding:
    what = {"agent.no-success": "last success", "agent.newer": "report"}.get(code, "last pull")
    return Finding("agent", FindingClass.ERROR, what, actual, desired, cause, remedy, code=code)


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
