"""CRI-O: version, files, and what `crio status config` answers."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.runtimes.crio import state
from gpunode.facts.base import UNITS, NodeFact


class Crio(NodeFact[state.Crio]):
    """Read the version, files and answer of the running unit's CRI-O."""

    probe = shell_text("components/runtimes/crio/state", shared=(UNITS.of("crio.service"),))
    parse = staticmethod(state.parse_crio)
