"""Operating system, architecture and kernel."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.operating_system import OperatingSystem as Reading
from gpunode.operating_system import parse_operating_system
from gpunode.probe import shell_text


class OperatingSystem(NodeFact[Reading]):
    """Read /etc/os-release, uname, and whether the board is a Tegra."""

    probe = shell_text("operating_system")
    parse = staticmethod(parse_operating_system)
