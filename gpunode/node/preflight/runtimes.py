"""May a container runtime's packages come, or would others have to go for them?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.verdicts import Refusal
from gpunode.components.crio.decide import INSTALL
from gpunode.components.runtime_packages import containerd_packages, docker_packages, removed_for, told_source, way_out
from gpunode.node.machine import Machine
from gpunode.packages.families.wording import wording
from gpunode.settings import Settings

_RELATIONS = "Conflicts of containerd.io, docker-ce and docker.io (gpunode/data/runtimes.yaml), and what is installed"


def crio_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without the CRI-O that is to be configured: gpunode installs none."""
    if settings.crio.enabled and machine.crio.version is None:
        reason = "there is no CRI-O on this node, and crio.source 'present' is the only one"
        yield Refusal("crio", reason, "the unit crio.service, and the PATH, of this node", INSTALL)


def runtime_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a runtime for which another one's packages would be removed, with the containers that these run."""
    system = tables.distribution(machine.operating_system.id, machine.operating_system.version_id)
    if system is None:
        return
    installed = machine.runtime_packages.names
    for runtime, desired, names in (
        ("containerd", settings.containerd, containerd_packages(settings.containerd)),
        ("docker", settings.docker, docker_packages(settings.docker, system)),
    ):
        lost = removed_for(names, installed, system.family) if desired.enabled else ()
        if lost:
            words = wording(machine.operating_system)
            yield Refusal(
                runtime,
                f"{' and '.join(names)} of {told_source(desired.source)} would remove {', '.join(lost)}, which "
                f"{'is' if len(lost) == 1 else 'are'} installed and which nobody asked to remove",
                _RELATIONS,
                f"{way_out(runtime, desired.source, system)}; or remove yourself what is to go (`{words.remove} "
                f"{' '.join(lost)}`), and run again",
            )


__all__ = ["crio_refusals", "runtime_refusals"]
