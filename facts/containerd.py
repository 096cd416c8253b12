"""containerd: version, configuration, and what its CRI plugin reports."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.runtimes.containerd import state
from gpunode.facts.base import UNITS, NodeFact


class Containerd(NodeFact[state.Containerd]):
    """Read the running unit's own binary and file: a node may have two containerd binaries."""

    probe = shell_text("components/runtimes/containerd/state", shared=(UNITS.of("containerd.service"),))
    parse = staticmethod(state.parse_containerd)
