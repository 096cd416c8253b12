"""Operating system, architecture and kernel."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.operating_system import OperatingSystem as Reading
from gpunode.operating_system import parse_operating_system


class OperatingSystem(NodeFact[Reading]):
    """Read /etc/os-release, uname, and whether the board is a Tegra."""

    probe = r"""
sed -n 's/^\(ID\|VERSION_ID\|VERSION_CODENAME\|ID_LIKE\|PRETTY_NAME\)=/os.\1=/p' /etc/os-release
echo architecture=$(uname -m)
echo kernel=$(uname -r)
if [ -e /etc/nv_tegra_release ] || grep -qs tegra /proc/device-tree/compatible; then echo tegra=yes; fi
"""
    parse = staticmethod(parse_operating_system)
