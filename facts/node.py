"""A whole node, or what preflight asks of it, in one round trip: the probes of its components in one command."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpunode.base.errors import in_words
from gpunode.base.probe import Probe, Text, shell_text
from gpunode.base.probe_output import repeated, sections, timestamp, values
from gpunode.base.reading import ParseError
from gpunode.facts.base import NodeFact, driver_root
from gpunode.facts.cluster import Imex, Kubelet, Rdma, Slurm
from gpunode.facts.driver import Driver
from gpunode.facts.families import by_manager
from gpunode.facts.gpu import Dcgm, Gpus, Health, Mig, MigBoot, Mps, PluginMps, Power
from gpunode.facts.packages import AptSources, Keyrings, RuntimePackages
from gpunode.facts.records import Applied, Interrupted
from gpunode.facts.runtimes import Containerd, Crio, Docker, Podman, Unmanaged
from gpunode.facts.system import Boot, Disk, Exposed, KubernetesSysctls, OperatingSystem, PciGpus
from gpunode.facts.toolkit import ContainerToolkit, CudaToolkits
from gpunode.node import Node as Reading
from gpunode.node.machine import Machine as MachineReading
from gpunode.node.machine import without_hardware

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
    "unmanaged": Unmanaged,
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
            f"read as user {user}, not as root, from whom the node hides much of what is judged: nothing is. "
            "Remedy: set `_sudo = True` in the inventory's data (group_data/all.py), or connect as root"
        )
    readings: dict[str, Any] = {}
    for name, fact in parts.items():
        if name not in found:
            raise ParseError(f"the answer has no section {name}")
        try:
            readings[name] = fact.parse(found[name])
        except Exception as error:
            raise ParseError(f"{name}: {in_words(error)}") from error
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
        """Return the probe of every part."""
        return Probe([(name, fact.of_host()) for name, fact in PARTS.items()], driver_root())


def parse_candidates(lines: list[str]) -> dict[str, Any]:
    """Parse `candidate=`, `offer=` and `available=PACKAGE VERSION`, `now=SECONDS` and `fetched=SECONDS` lines."""
    found: dict[str, Any] = {}
    for field, key in (("candidates", "candidate"), ("offers", "offer"), ("available", "available")):
        pairs = (line.partition(" ") for line in repeated(lines, key))
        found[field] = tuple(dict.fromkeys((name, version) for name, _, version in pairs if version))
    times = [timestamp(line) for key in ("now", "fetched") for line in repeated(lines, key)]
    # Where a repository's lists are older than another's, the oldest count.
    found["lists_age"] = max(0, int(times[0] - min(times[1:]))) if len(times) > 1 else None
    return found


# One package of each component that a version is asked for.
_PINNED = (
    "nvidia-container-toolkit", "datacenter-gpu-manager-4-core", "datacenter-gpu-manager-exporter", "docker-ce",
    "docker.io", "containerd.io", "containerd", "podman", "nvidia-open", "cuda-drivers", "nvidia-imex",
)  # fmt: skip
# Names with a number in them, as package managers and as regular expressions have them.
_NAMES = " ".join((*_PINNED, "cuda-toolkit-*", "nvidia-compute-utils-G0?"))
_NUMBERED = ("cuda-toolkit-[0-9]+-[0-9]+", "nvidia-compute-utils-G0[0-9]")
_EXPRESSION = "|".join((*(name.replace(".", "[.]") for name in _PINNED), *_NUMBERED))


def _offered(manager: str) -> Text:
    return shell_text("packages/families/offered", MANAGER=manager, NAMES=_NAMES, PACKAGES=_EXPRESSION)


class _Candidates(NodeFact[Any]):
    probe = "date +now=%s\n" + by_manager(
        apt=shell_text("packages/families/candidates", PACKAGES=_EXPRESSION),
        **{name: _offered(name) for name in ("dnf", "dnf5", "zypper", "pacman")},
    )
    parse = staticmethod(parse_candidates)


_WITH_CANDIDATES: dict[str, type[NodeFact[Any]]] = {**PARTS, "candidates": _Candidates}


class NodeWithCandidates(NodeFact[Reading]):
    """Read a whole node and what its package lists have; for a plan alone, since package managers are slow."""

    @staticmethod
    def parse(lines: list[str]) -> Any:
        """Return the node with its candidates."""
        parts = parse_parts(_WITH_CANDIDATES, lines)
        return Reading(**{**parts, **parts["candidates"]})

    def command(self) -> Probe:
        """Return the probe of every part and of the candidates."""
        return Probe([(name, fact.of_host()) for name, fact in _WITH_CANDIDATES.items()], driver_root())


_JUDGED = ("operating_system", "pci", "driver", "cuda", "boot", "disk", "apt_sources", "toolkit", "runtime_packages")
_RECORD = ("interrupted", "applied")
_OTHERS = ("containerd", "docker", "podman", "crio", "unmanaged", "slurm", "rdma", "dcgm", "kubelet")
_MACHINE = {name: PARTS[name] for name in (*_JUDGED, *_OTHERS, *_RECORD)}


def _parse_machine(lines: list[str]) -> MachineReading:
    return without_hardware(MachineReading(**parse_parts(_MACHINE, lines)))


class Machine(NodeFact[MachineReading]):
    """Read what preflight judges: enough to refuse a node, and cheaper than to read all of it."""

    parse = staticmethod(_parse_machine)

    def command(self) -> Probe:
        """Return the probe of these components."""
        return Probe([(name, fact.of_host()) for name, fact in _MACHINE.items()], driver_root())
