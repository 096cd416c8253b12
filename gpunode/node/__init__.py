"""A whole node in one reading: every component's state, taken in one round trip."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpunode.components.imex.state import Imex
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import Mig
from gpunode.components.mps.plugin import PluginMps
from gpunode.components.mps.state import Mps
from gpunode.components.power.state import Power
from gpunode.node.machine import Machine
from gpunode.packages.trust import Keyrings
from gpunode.system.exposed import Exposed
from gpunode.system.gpu import Gpus
from gpunode.system.health import Health
from gpunode.system.kernel import KubernetesSysctls


@dataclass(frozen=True, kw_only=True)
class Node(Machine):
    """Hold the state of every component of a node, beside what preflight judges."""

    gpus: Gpus
    health: Health
    keyrings: Keyrings
    imex: Imex = field(default_factory=Imex)
    mps: Mps = field(default_factory=Mps)
    plugin_mps: PluginMps = field(default_factory=PluginMps)
    mig: Mig = field(default_factory=lambda: Mig("absent"))
    mig_boot: MigBoot = field(default_factory=MigBoot)
    power: Power = field(default_factory=Power)
    sysctls: KubernetesSysctls = field(default_factory=KubernetesSysctls)
    exposed: Exposed = field(default_factory=Exposed)

    @property
    def containers(self) -> int:
        """Return how many containers run, by whichever runtime."""
        return self.containerd.shims + self.docker.containers + self.crio.containers
