"""Which version of the driver's packages apt would install: asked for a plan alone, since it is slow."""

from __future__ import annotations

from typing import Any

from facts.base import NodeFact
from facts.node import PARTS, parse_parts
from gpunode.node import Node as Reading
from gpunode.probe import Probe
from gpunode.probe_output import repeated

# The lists as they are: nothing is refreshed.
_PROBE = r"""
command -v apt-cache >/dev/null && apt-cache policy $(apt-cache pkgnames | grep -xE \
  '(nvidia-open|cuda-drivers|nvidia-driver|nvidia-headless)-[0-9]{3}(-server)?(-open)?') |
  awk '/^[^ ]/{name=$1; sub(/:$/, "", name)} $1=="Candidate:" && $2!="(none)"{print "candidate=" name " " $2}'
"""


def parse_candidates(lines: list[str]) -> tuple[tuple[str, str], ...]:
    """Parse `candidate=PACKAGE VERSION` lines."""
    found = (line.partition(" ") for line in repeated(lines, "candidate"))
    return tuple((name, version) for name, _, version in found)


class NodeWithCandidates(NodeFact[Reading]):
    """Read a whole node and the candidates of the driver's packages, in one round trip."""

    @staticmethod
    def parse(lines: list[str]) -> Any:
        """Return the node with its candidates."""
        return Reading(**parse_parts({**PARTS, "candidates": _Candidates}, lines))

    def command(self) -> Probe:
        """Return the probe of every component and of the candidates."""
        return Probe([*((name, fact.probe) for name, fact in PARTS.items()), ("candidates", _PROBE)])


class _Candidates(NodeFact[Any]):
    parse = staticmethod(parse_candidates)
