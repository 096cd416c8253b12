"""Container runtimes: those with a fact module of their own, podman, and runtimes that gpunode does not manage."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.runtimes import unmanaged
from gpunode.components.runtimes.podman import state as podman
from gpunode.facts.base import UNITS, NodeFact
from gpunode.facts.containerd import Containerd as Containerd
from gpunode.facts.crio import Crio as Crio
from gpunode.facts.docker import Docker as Docker


class Podman(NodeFact[podman.Podman]):
    """Read podman's version, and the runtime that its configuration files set."""

    probe = shell_text("components/runtimes/podman/state")
    parse = staticmethod(podman.parse_podman)


_ROWS = unmanaged.rows()
_UNITS = [unit for row in _ROWS for unit in row.units]


class Unmanaged(NodeFact[unmanaged.Unmanaged]):
    """Read which programs that bring a container runtime of their own are installed."""

    probe = shell_text(
        "components/runtimes/unmanaged",
        shared=(UNITS.of(*_UNITS),),
        OTHER_RUNTIMES=" ".join(_UNITS),
        OTHER_FILES=" ".join(dict.fromkeys(path for row in _ROWS for path in (row.socket, row.config) if path)),
    )
    parse = staticmethod(unmanaged.parse_unmanaged)
