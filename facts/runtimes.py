"""Container runtimes: version, configuration, and what the running daemon reports."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

from gpunode.base.probe import Text, shell_text
from gpunode.components.runtimes import unmanaged
from gpunode.components.runtimes.containerd import source
from gpunode.components.runtimes.containerd import state as containerd
from gpunode.components.runtimes.crio import state as crio
from gpunode.components.runtimes.docker import state as docker
from gpunode.components.runtimes.podman import state as podman
from gpunode.facts.base import UNITS, NodeFact, host_settings


@cache
def _containerd(of: source.Source) -> Text:
    values = {name.upper(): value for name, value in asdict(of).items()}
    return shell_text("components/runtimes/containerd/state", shared=(UNITS.of(of.unit),), **values)


class Containerd(NodeFact[containerd.Containerd]):
    """Read the binary and file of the unit containerd.unit: a node may have two containerd binaries."""

    probe = _containerd(source.Source())

    @classmethod
    def of_host(cls) -> str:
        """Return the probe for the unit and the file that the host's settings name."""
        own = host_settings("containerd")
        return _containerd(source.source_of(own.get("unit"), own.get("config")))

    parse = staticmethod(containerd.parse_containerd)


class Docker(NodeFact[docker.Docker]):
    """Read the client's version, and of the running unit's dockerd version, file, flags and answer."""

    probe = shell_text("components/runtimes/docker/state", shared=(UNITS.of("docker.service"),))
    parse = staticmethod(docker.parse_docker)


class Crio(NodeFact[crio.Crio]):
    """Read of the running unit's CRI-O version, files and answer."""

    probe = shell_text("components/runtimes/crio/state", shared=(UNITS.of("crio.service"),))
    parse = staticmethod(crio.parse_crio)


class Podman(NodeFact[podman.Podman]):
    """Read podman's version, and which runtime its files of settings name."""

    probe = shell_text("components/runtimes/podman/state")
    parse = staticmethod(podman.parse_podman)


class Unmanaged(NodeFact[unmanaged.Unmanaged]):
    """Read which programs that bring a container runtime of their own are installed."""

    probe = shell_text(
        "components/runtimes/unmanaged",
        shared=(UNITS.of(*unmanaged.units()),),
        OTHER_RUNTIMES=" ".join(unmanaged.units()),
        OTHER_FILES=" ".join(unmanaged.paths()),
    )
    parse = staticmethod(unmanaged.parse_unmanaged)
