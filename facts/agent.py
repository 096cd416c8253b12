"""What a node's agent says of its last pull: the report that it left for whoever collects it."""

from __future__ import annotations

from gpunode.agent.collected import Collected, parse_report
from gpunode.agent.files import PLACES
from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact


class AgentReport(NodeFact[Collected]):
    """Read the report, and whether there is an agent."""

    probe = shell_text("agent/report", REPORT=str(PLACES.report), CONFIG=str(PLACES.config))
    parse = staticmethod(parse_report)
