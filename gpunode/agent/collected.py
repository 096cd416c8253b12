"""Reports that nodes' agents left, as a controller judges them: what they found, and whether they still pull. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from gpunode.base.document import AGENT_SCHEMA, AHEAD, REPORT_SCHEMA, UPDATE, newer
from gpunode.base.explained import quoted
from gpunode.base.findings import ExitCode, Finding, FindingClass, NodeReport, finding_from, summary_from, worst
from gpunode.base.messages import Code, as_data, command_error
from gpunode.base.probe_output import decoded, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.structured_text import TextError, load_json

_LOOK = "look at `systemctl status gpunode-agent.timer gpunode-agent` on the node"
_NO_AGENT = command_error(
    "agent.none", "A node has no agent.",
    "Only a push brings it to its settings.",
    remedy="`gpunode agent install`, or leave the host out with --limit",
)  # fmt: skip
SILENT = command_error(
    "agent.silent", "A node's agent has not pulled for too long, has never pulled, or left no readable report.",
    "The node's present state is not known.", remedy=_LOOK,
)  # fmt: skip
_NO_SUCCESS = command_error(
    "agent.no-success", "No pull of a node has reached its bundle's settings for too long.",
    "The agent runs; each of its runs was refused, failed or left a difference. The other findings say which.",
    remedy="correct the other findings",
)  # fmt: skip
_NEWER = command_error(
    "agent.newer", "A bundle, the agent's own state or its report has a version that is not known where it is read.",
    "A newer gpunode may have written it. The node stays unchanged, and nothing of its report is shown.",
    remedy="on the node, `gpunode agent install` of the newer gpunode; for a report, update gpunode where it is "
    "collected",
    exit="3 on the node, 1 of `gpunode agent collect`",
)  # fmt: skip
_SET = (
    "set the node's clock (`timedatectl` on the node), and start the next pull: `systemctl start gpunode-agent.service`"
)
_CLOCK = command_error(
    "agent.clock", "A report of a node's agent is of a time that is later than now.",
    "The node's clock is, or was, more than five minutes ahead. How old the report is, and whether the agent still "
    "pulls, is not known: nothing of such a report is shown or recorded.",
    remedy=_SET,
)  # fmt: skip
_REINSTALL = "`gpunode agent install` for this host"
_OTHER = command_error(
    "agent.report-host", "A node's agent reports as another host of the inventory.",
    "It follows the bundles of that host, whose settings are not this host's. Nothing of its report is shown.",
    remedy=f"{_REINSTALL}; a machine that takes a group's bundle (`--host`) is not collected by its own name",
)  # fmt: skip
_LOG = "read /var/lib/gpunode/agent/private/run/log on the node, and correct the cause; the next pull tries again"
_RUN_BROKEN = command_error(
    "agent.run-broken", "gpunode did not finish on the node, or reached no verdict.",
    remedy=_LOG,
)  # fmt: skip


def _refusal(code: str, summary: str, detail: str, *, remedy: str) -> None:
    """Declare why pull.py applies no bundle; it runs without gpunode, and has each code as text."""
    command_error(code, summary, f"{detail} The node stays unchanged.", remedy=remedy, exit="3")


_refusal(
    "agent.not-fetched", "A node could not fetch its bundle, or the program that the bundle names.",
    "The file is missing, redirected or too large, or the server has no HTTPS certificate that the node trusts.",
    remedy="check the server, its certificate and the network to it; make the bundle where it is missing",
)  # fmt: skip
_refusal(
    "agent.not-verified", "A node could not verify a signature because it cannot run ssh-keygen.",
    "OpenSSH's program verifies a bundle before any part of it is parsed.",
    remedy="install openssh-client on the node",
)  # fmt: skip
_refusal(
    "agent.bundle-altered", "A bundle, its signature or its program is not the one that was signed.",
    "It was changed after it was signed, by a person or a faulty disk, or its schema is not the agent's.",
    remedy="make the bundles again, and check who may write to their folder",
)  # fmt: skip
_refusal(
    "agent.bundle-signer", "A bundle is signed with a key that the node does not trust.",
    "The agent was installed with another key.",
    remedy="sign with that key, or install the agent with this one",
)  # fmt: skip
_refusal(
    "agent.bundle-host", "A bundle is for another host.",
    "Each host has its own bundle, whose signature covers the host's name.",
    remedy="check which bundle is at this node's address, or install the agent for the right host",
)  # fmt: skip
_refusal(
    "agent.bundle-expired", "A bundle has expired by the node's clock.",
    "Its settings have not been confirmed since.",
    remedy="make the bundles again; where the node's clock is wrong, set it",
)  # fmt: skip
_refusal(
    "agent.bundle-older",
    "A bundle's number is withdrawn, lower than one that the node has applied, or that of another bundle.",
    "This stops anyone who can write to the bundles' folder from bringing back old settings.",
    remedy="to go back, make a new bundle with a larger number",
)
_refusal(
    "agent.other-python", "The program of a bundle is for another Python or architecture than the node's.",
    "It has compiled parts, and comes from the environment where the bundles were made.",
    remedy="make the bundles with a gpunode on that Python, or install that Python on the node and the agent with "
    "--python",
)  # fmt: skip
_refusal(
    "agent.busy", "Another run held the node's lock for so long that the pull gave up.",
    "A pull waits two hours at most. The finding names the process.",
    remedy="check whether that process hangs",
)  # fmt: skip


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
        report = load_json(text)
    except TextError as error:
        raise ParseError(f"the agent's report cannot be read as JSON: {error}") from None
    if not isinstance(report, dict):
        raise ParseError("the agent's report is no JSON object")
    return Collected(found.get("agent") == "yes", report)


def judged(name: str, found: Collected, now: datetime, silent: timedelta) -> NodeReport:
    """Return what is known of a node by its agent's report; raise ParseError where that is none.

    silent: how old a report, and the last success, may be
    """
    if not found.installed:
        said = "the node has no agent"
        return NodeReport(name, (_bad(_NO_AGENT, "none", "installed", said, "install it: `gpunode agent install`"),))
    if found.report is None:
        return NodeReport(name, (_bad(SILENT, "no report", "a report", "it has not pulled yet", _LOOK),))
    if reason := newer(found.report, AGENT_SCHEMA) or newer(found.report, REPORT_SCHEMA, "document_schema"):
        return NodeReport(name, (_bad(_NEWER, "unknown version", "readable", reason, UPDATE),))
    try:
        ((of, host),) = found.report["hosts"].items()
        code, gravest = ExitCode(found.report["exit_code"]), FindingClass(host["class"])
        at = _time(found.report["at"])
        success = found.report["agent"]["last_success"]
        last = None if success is None else _time(success)
        findings = tuple(finding_from(quoted(each)) for each in host["findings"])
        # Nothing waits since a time behind the report.
        findings = tuple(
            replace(each, since=each.since if each.since and _time(each.since) <= at else None) for each in findings
        )
        summary = None if host["summary"] is None else summary_from(host["summary"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ParseError(f"the agent's report is not one: {error}") from None
    if of != name:
        cause = "the agent follows the bundles of another host"
        return NodeReport(name, (_bad(_OTHER, as_data(of), name, cause, _REINSTALL),))
    if at > now + AHEAD:
        return NodeReport(name, (_ahead(at, now),))
    if not any(each.is_negative for each in findings) and (code or gravest is not worst(findings)):
        findings += (_bad(_RUN_BROKEN, f"exit code {code}, {gravest}", "exit code 0", "no finding says why", _LOG),)
    findings += _in_time(at, last, now, silent)
    return NodeReport(name, findings, summary, f"{min(at, now):%Y-%m-%dT%H:%M:%SZ}")


def _ahead(time: datetime, now: datetime) -> Finding:
    cause = f"the node's clock is, or was, {time - now} ahead; how old that is, is not known"
    return _bad(_CLOCK, f"{time:%Y-%m-%d %H:%M} UTC", f"{now:%Y-%m-%d %H:%M} UTC at most", cause, _SET)


def _in_time(at: datetime, last: datetime | None, now: datetime, silent: timedelta) -> tuple[Finding, ...]:
    limit = f"within {silent}"
    if now - at > silent:
        return (_bad(SILENT, f"{at:%Y-%m-%d %H:%M} UTC", limit, "its last pull is too long ago", _LOOK),)
    if last is not None and last > now + AHEAD:
        return (_ahead(last, now),)
    if last is None or now - last > silent:
        actual = "never" if last is None else f"{last:%Y-%m-%d %H:%M} UTC"
        why = "its pulls did not come to what the bundle asks; the other findings say why"
        return (_bad(_NO_SUCCESS, actual, limit, why, "mend what the other findings tell"),)
    return (Finding("agent", FindingClass.OK, "last success", f"{last:%Y-%m-%d %H:%M} UTC", limit, code=_NO_SUCCESS),)


def _bad(code: Code, actual: str, desired: str, cause: str, remedy: str) -> Finding:
    what = {_NO_SUCCESS: "last success", _RUN_BROKEN: "bundle"} | dict.fromkeys((_NEWER, _OTHER, _CLOCK), "report")
    return Finding("agent", FindingClass.ERROR, what.get(code, "last pull"), actual, desired, cause, remedy, code=code)


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
