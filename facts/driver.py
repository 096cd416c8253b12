"""The NVIDIA driver: packages, module on disk, loaded modules, library."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.driver.state import DriverState as Reading
from gpunode.components.driver.state import parse_driver
from gpunode.facts.base import UNITS, NodeFact
from gpunode.facts.packages import PACKAGES
from gpunode.node.own_files.holds import PREFERENCES
from gpunode.packages.families import dnf, dnf5
from gpunode.system.running_boot import RECORD

_SERVICES = ("nvidia-fabricmanager", "nvidia-persistenced")
_UNITS = tuple(f"{name}.service" for name in _SERVICES)


class Driver(NodeFact[Reading]):
    """Read every place where a driver version shows, and whether nvidia_uvm is loaded."""

    probe = shell_text(
        "components/driver/state",
        shared=(PACKAGES, UNITS.of(*_UNITS)),
        RECORD=RECORD,
        SERVICES=" ".join(_SERVICES),
        PREFERENCES=PREFERENCES,
        LOCKLIST=dnf.LOCKLIST,
        VERSIONLOCK=dnf5.LOCKLIST,
    )
    parse = staticmethod(parse_driver)
