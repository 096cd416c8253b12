"""CRI-O: version, files, and what the running daemon says of itself."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.crio.state import Crio as Reading
from gpunode.components.crio.state import parse_crio
from gpunode.facts.base import UNITS, NodeFact


class Crio(NodeFact[Reading]):
    """Read of the running unit's CRI-O version, files and answer."""

    probe = shell_text("components/crio/state", shared=(UNITS.of("crio.service"),))
    parse = staticmethod(parse_crio)
