"""Operating system, architecture and kernel."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.operating_system import OperatingSystem as Reading
from gpunode.system.operating_system import parse_operating_system


class OperatingSystem(NodeFact[Reading]):
    """Read /etc/os-release, uname, and whether the board is a Tegra."""

    probe = shell_text("system/operating_system")
    parse = staticmethod(parse_operating_system)
