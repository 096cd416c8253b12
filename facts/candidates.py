"""Which version of the driver's packages apt would install: asked for a plan alone, since it is slow."""

from __future__ import annotations

from typing import Any

from gpunode.base.probe import Probe, shell_text
from gpunode.base.probe_output import repeated
from gpunode.facts.base import NodeFact, driver_root
from gpunode.facts.node import PARTS, parse_parts
from gpunode.node import Node as Reading

_PROBE = shell_text("packages/families/candidates")


def parse_candidates(lines: list[str]) -> dict[str, tuple[tuple[str, str], ...]]:
    """Parse `candidate=PACKAGE VERSION` and `offer=PACKAGE VERSION` lines."""
    found = {}
    for field, key in (("candidates", "candidate"), ("offers", "offer")):
        pairs = (line.partition(" ") for line in repeated(lines, key))
        found[field] = tuple((name, version) for name, _, version in pairs)
    return found


class NodeWithCandidates(NodeFact[Reading]):
    """Read a whole node and the candidates of the driver's packages, in one round trip."""

    @staticmethod
    def parse(lines: list[str]) -> Any:
        """Return the node with its candidates."""
        parts = parse_parts({**PARTS, "candidates": _Candidates}, lines)
        return Reading(**{**parts, **parts["candidates"]})

    def command(self) -> Probe:
        """Return the probe of every component and of the candidates."""
        return Probe([*((name, fact.probe) for name, fact in PARTS.items()), ("candidates", _PROBE)], driver_root())


class _Candidates(NodeFact[Any]):
    parse = staticmethod(parse_candidates)
