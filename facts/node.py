"""A whole node in one round trip: every component's probe in one command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpunode.base.probe import Probe
from gpunode.base.probe_output import sections, values
from gpunode.base.reading import ParseError
from gpunode.facts.applied import Applied
from gpunode.facts.base import NodeFact, driver_root
from gpunode.facts.boot import Boot
from gpunode.facts.containerd import Containerd
from gpunode.facts.crio import Crio
from gpunode.facts.cuda import CudaToolkits
from gpunode.facts.dcgm import Dcgm
from gpunode.facts.docker import Docker
from gpunode.facts.driver import Driver
from gpunode.facts.gpu import Gpus, Health
from gpunode.facts.imex import Imex
from gpunode.facts.interrupted import Interrupted
from gpunode.facts.kubelet import Kubelet
from gpunode.facts.mig import Mig, MigBoot
from gpunode.facts.mps import Mps, PluginMps
from gpunode.facts.packages import AptSources, Keyrings, RuntimePackages
from gpunode.facts.podman import Podman
from gpunode.facts.power import Power
from gpunode.facts.rdma import Rdma
from gpunode.facts.slurm import Slurm
from gpunode.facts.system import Disk, Exposed, KubernetesSysctls, OperatingSystem, PciGpus
from gpunode.facts.toolkit import ContainerToolkit
from gpunode.node import Node as Reading

PARTS: dict[str, type[NodeFact[Any]]] = {
    "operating_system": OperatingSystem,
    "pci": PciGpus,
    "driver": Driver,
    "runtime_packages": RuntimePackages,
    "gpus": Gpus,
    "health": Health,
    "cuda": CudaToolkits,
    "toolkit": ContainerToolkit,
    "containerd": Containerd,
    "docker": Docker,
    "podman": Podman,
    "crio": Crio,
    "imex": Imex,
    "slurm": Slurm,
    "rdma": Rdma,
    "dcgm": Dcgm,
    "kubelet": Kubelet,
    "keyrings": Keyrings,
    "boot": Boot,
    "disk": Disk,
    "apt_sources": AptSources,
    "mps": Mps,
    "plugin_mps": PluginMps,
    "mig": Mig,
    "mig_boot": MigBoot,
    "power": Power,
    "sysctls": KubernetesSysctls,
    "exposed": Exposed,
    "interrupted": Interrupted,
    "applied": Applied,
}


def parse_parts(parts: Mapping[str, type[NodeFact[Any]]], lines: list[str]) -> dict[str, Any]:
    """Parse each section with its component's own parser; raise ParseError naming the section that is wrong.

    Raised, too, where it was not root who asked: from another user a node hides what it has, and half a reading would
    pass for a bare node.
    """
    found = sections(line for line in lines if line)
    if user := values(found.get("operating_system", ())).get("user"):
        raise ParseError(
            f"read as user {user}, not as root, from whom the node hides much of what is judged: nothing is. Set "
            "`_sudo = True` in the inventory's data (group_data/all.py), or connect as root"
        )
    readings: dict[str, Any] = {}
    for name, fact in parts.items():
        if name not in found:
            raise ParseError(f"the answer has no section {name}")
        try:
            readings[name] = fact.parse(found[name])
        except ParseError as error:
            raise ParseError(f"{name}: {error}") from error
    if {"driver", "boot"} <= readings.keys():
        readings["driver"] = readings["driver"].with_next_kernel(readings["boot"])
    return readings


def parse_node(lines: list[str]) -> Reading:
    """Return the node that the sections tell of; raise ParseError naming the section that is wrong."""
    return Reading(**parse_parts(PARTS, lines))


class Node(NodeFact[Reading]):
    """Read every component of a node at once."""

    parse = staticmethod(parse_node)

    def command(self) -> Probe:
        """Return the probe of every component."""
        return Probe([(name, fact.probe) for name, fact in PARTS.items()], driver_root())
