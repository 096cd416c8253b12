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
command -v apt-cache >/dev/null || exit 0
# Where apt's cache of its lists is outdated, whoever asks writes it anew: here beside the node's own.
folder=$(mktemp -d) || exit 0; trap 'rm -rf "$folder"' EXIT
asked() { apt-cache -o "Dir::Cache::pkgcache=$folder/pkgcache" -o "Dir::Cache::srcpkgcache=$folder/srcpkgcache" "$@"; }
names=$(asked pkgnames)
asked policy $(printf '%s\n' "$names" | grep -xE \
  '(nvidia-open|cuda-drivers)-[0-9]{3}(-[a-z]+)*') |
  awk '/^[^ ]/{name=$1; sub(/:$/, "", name)} $1=="Candidate:" && $2!="(none)"{print "candidate=" name " " $2}'
# A flat repository has no component: NVIDIA's is one, a distribution's archive never.
asked madison $(printf '%s\n' "$names" | grep -xE \
  'nvidia-(open-)?kernel-dkms|nvidia-(headless-no-dkms|utils)-[0-9]{3}-server(-open)?') |
  awk -F '|' 'NF>2 && $3 ~ / [^ ]+\/[^ ]+ .*Packages/{gsub(/ /, "", $1); gsub(/ /, "", $2); print "offer=" $1 " " $2}'
"""


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
        return Probe([*((name, fact.probe) for name, fact in PARTS.items()), ("candidates", _PROBE)])


class _Candidates(NodeFact[Any]):
    parse = staticmethod(parse_candidates)
