"""A node's part in clusters: kubelet, kube-scheduler, Slurm, the IMEX domain, and RDMA devices."""

from __future__ import annotations

from gpunode.base.probe import Probe, shell_text
from gpunode.components.imex import state as imex
from gpunode.components.rdma import decide as rdma
from gpunode.components.slurm import state as slurm
from gpunode.facts.base import UNITS, NodeFact, probe_command
from gpunode.kubernetes.gpushare.configuration import FOLDER
from gpunode.kubernetes.gpushare.decide import SchedulerState, parse_scheduler
from gpunode.settings.imex import known
from gpunode.system import kubelet


class Kubelet(NodeFact[kubelet.Kubelet]):
    """Read the kubelet's version, and of one that runs what GPUs need to know of its configuration."""

    probe = shell_text("system/kubelet", NOTED=kubelet.NOTED, shared=(UNITS.of("kubelet.service"),))
    parse = staticmethod(kubelet.parse_kubelet)


class Scheduler(NodeFact[SchedulerState]):
    """Read the static manifest, gpunode's configuration files, and the command lines of what runs."""

    parse = staticmethod(parse_scheduler)

    def command(self, manifest: str) -> Probe:  # type: ignore[override]
        """Return the probe for the manifest at `manifest`."""
        return probe_command(shell_text("kubernetes/gpushare/scheduler", MANIFEST=manifest, FOLDER=FOLDER))


class Slurm(NodeFact[slurm.Slurm]):
    """Read slurmd, the files that it reads, the devices that it could offer, and what slurmctld says of the node."""

    probe = shell_text(
        "components/slurm/state",
        shared=(UNITS.of("slurmd.service", "slurmctld.service"),),
        FOLDER=slurm.FOLDER,
        FILES=" ".join(slurm.FILES),
        GRES=slurm.GRES,
    )
    parse = staticmethod(slurm.parse_slurm)


class Imex(NodeFact[imex.Imex]):
    """Read the list of nodes, the service, and what its daemon says of the domain."""

    probe = shell_text(
        "components/imex/state",
        shared=(UNITS.of(known().unit),),
        NODES=known().nodes_file,
        RECORD=imex.RECORD,
        CONFIG=known().config_file,
        CHANNEL=known().channel_device,
    )
    parse = staticmethod(imex.parse_imex)


class Rdma(NodeFact[rdma.Rdma]):
    """Read the node's RDMA devices from sysfs, their ports, interfaces and character devices; by no program."""

    probe = shell_text("components/rdma/state", SYS="/sys", DEV="/dev")
    parse = staticmethod(rdma.parse_rdma)
