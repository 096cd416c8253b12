"""What preflight asks of a node, in one round trip."""

from __future__ import annotations

from gpunode.base.probe import Probe
from gpunode.facts.base import NodeFact, driver_root
from gpunode.facts.node import PARTS, parse_parts
from gpunode.node.machine import Machine as Reading
from gpunode.node.machine import without_hardware

_NAMES = ("operating_system", "pci", "driver", "cuda", "boot", "disk", "apt_sources", "toolkit", "runtime_packages")
_RECORD = ("interrupted", "applied")
_PARTS = {name: PARTS[name] for name in (*_NAMES, "podman", "crio", "slurm", "rdma", "dcgm", "kubelet", *_RECORD)}


def _parse(lines: list[str]) -> Reading:
    return without_hardware(Reading(**parse_parts(_PARTS, lines)))


class Machine(NodeFact[Reading]):
    """Read what preflight judges: enough to refuse a node, and cheaper than to read all of it."""

    parse = staticmethod(_parse)

    def command(self) -> Probe:
        """Return the probe of these components."""
        return Probe([(name, fact.probe) for name, fact in _PARTS.items()], driver_root())
