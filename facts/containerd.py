"""containerd: version, merged configuration, CRI plugin, when it started."""

from __future__ import annotations

from gpunode.containerd.state import Containerd as Reading
from gpunode.containerd.state import parse_containerd
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import UNITS
from gpunode.probe import shell_text


class Containerd(NodeFact[Reading]):
    """Read the running unit's own binary and file: a node may have two containerd binaries."""

    probe = shell_text("containerd/state", shared=(UNITS.of("containerd.service"),))
    parse = staticmethod(parse_containerd)
