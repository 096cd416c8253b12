"""The files that keep packages still, where nobody asks for that any more.

What they say where it is asked for follows from the packages that are there, and is judged with these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpunode.base import tables
from gpunode.packages.families.pacman import IGNORED

if TYPE_CHECKING:
    from gpunode.node.machine import Machine
    from gpunode.settings import Settings

PREFERENCES = "/etc/apt/preferences.d/gpunode-driver"
UNATTENDED = "/etc/apt/apt.conf.d/52gpunode-driver"
TOOLKIT_PREFERENCES = "/etc/apt/preferences.d/gpunode-toolkit"
PATHS = (PREFERENCES, UNATTENDED, IGNORED, TOOLKIT_PREFERENCES)
_DRIVER = {"apt": (PREFERENCES, UNATTENDED), "pacman": (IGNORED,)}


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return the files that go."""
    system, driver, toolkit = machine.operating_system, settings.driver, settings.toolkit
    distribution = tables.distribution(system.id, system.version_id)
    family = distribution.family if distribution else ""
    gone: list[str] = []
    if driver.enabled and driver.installs and not driver.hold:
        gone += _DRIVER.get(family, ())
    if toolkit.enabled and not toolkit.hold and family == "apt":
        gone.append(TOOLKIT_PREFERENCES)
    return dict.fromkeys(gone)
