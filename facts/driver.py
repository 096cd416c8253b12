"""The NVIDIA driver: packages, module on disk, loaded modules, library."""

from __future__ import annotations

from gpunode.driver import DriverState as Reading
from gpunode.driver import parse_driver
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import PACKAGES, UNITS
from gpunode.probe import shell_text
from gpunode.reboot import RECORD

_SERVICES = ("nvidia-fabricmanager", "nvidia-persistenced")
_UNITS = tuple(f"{name}.service" for name in _SERVICES)


class Driver(NodeFact[Reading]):
    """Read every place where a driver version shows, and whether nvidia_uvm is loaded."""

    probe = shell_text(
        "driver/state", shared=(PACKAGES, UNITS.of(*_UNITS)), RECORD=RECORD, SERVICES=" ".join(_SERVICES)
    )
    parse = staticmethod(parse_driver)
