"""containerd: version, merged configuration, CRI plugin, when it started."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.containerd.state import Containerd as Reading
from gpunode.components.containerd.state import parse_containerd
from gpunode.facts.base import UNITS, NodeFact


class Containerd(NodeFact[Reading]):
    """Read the running unit's own binary and file: a node may have two containerd binaries."""

    probe = shell_text("components/containerd/state", shared=(UNITS.of("containerd.service"),))
    parse = staticmethod(parse_containerd)
