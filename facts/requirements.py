"""Every stated minimum, judged on the node."""

from __future__ import annotations

from gpunode.base.probe import Probe
from gpunode.facts.base import NodeFact
from gpunode.facts.node import Node, parse_node
from gpunode.node.requirements import Requirements as Reading
from gpunode.node.requirements import judge


def _parse(lines: list[str]) -> Reading:
    return judge(parse_node(lines))


class Requirements(NodeFact[Reading]):
    """Read the node and judge each minimum: met, not met, not applicable or unknown."""

    parse = staticmethod(_parse)

    def command(self) -> Probe:
        """Return the probe of every component."""
        return Node().command()
