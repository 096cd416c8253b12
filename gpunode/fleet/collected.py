"""What the agents of an inventory's nodes said last, read in one round trip each; nothing is changed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from pathlib import Path

# Before anything of pyinfra's.
from gpunode.base import fast_import  # noqa: F401  # isort: skip
from gpunode.agent.collected import SILENT, Collected, judged
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.reading import ParseError
from gpunode.facts.agent import AgentReport
from gpunode.fleet import nodes as fleet
from gpunode.fleet.drift import unread


def collected(
    inventory: Path, watch: fleet.Watch, now: datetime, silent: timedelta, limit: Collection[str] = ()
) -> tuple[NodeReport, ...]:
    """Return a report per host: what its agent found, and whether that is recent; raise what fleet.read raises."""
    return tuple(_report(answer, now, silent) for answer in fleet.read(inventory, AgentReport, watch, limit=limit))


def _report(answer: fleet.Answer[Collected], now: datetime, silent: timedelta) -> NodeReport:
    if not isinstance(answer.reading, Collected):
        return NodeReport(answer.name, (unread(answer),))
    try:
        return judged(answer.name, answer.reading, now, silent)
    except ParseError as error:
        remedy = "install the agent anew: `gpunode agent install`"
        item = Finding("agent", FindingClass.ERROR, "report", "unreadable", "readable", str(error), remedy, code=SILENT)
        return NodeReport(answer.name, (item,))
