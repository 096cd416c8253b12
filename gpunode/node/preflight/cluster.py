"""Can the node do its part in clusters: kubelet, Slurm, IMEX, RDMA, and one DCGM?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.base.versions import at_least, upstream
from gpunode.components.dcgm.decide import Desired, in_the_way, second_pods, second_units
from gpunode.components.rdma import decide as rdma
from gpunode.components.slurm.decide import lacks
from gpunode.components.slurm.state import FOLDER
from gpunode.node.machine import Machine
from gpunode.packages.driver_packages.names import is_imex
from gpunode.packages.driver_packages.sources import driver_source
from gpunode.settings import Settings
from gpunode.settings.dcgm import known
from gpunode.system.kubelet import Kubelet

# Since then a kubelet asks the runtime for its driver, and heeds its own setting where the runtime does not say.
# source: KEP-4033; containerd/containerd#8722; CRI-O 1.28
_ASKS_SINCE, _ANSWERS_SINCE = "1.31", {"containerd": "2.0", "crio": "1.28"}


CGROUP_DRIVER = RefusalMessage(
    "kubelet-cgroup-driver",
    "The kubelet and the container runtime are to have different cgroup drivers.",
    component="{runtime}",
    reason="the kubelet's cgroupDriver is {actual}, and {runtime}'s is to be {desired}: pods would fail under load",
    source="Kubernetes documentation, configuring a cgroup driver",
    remedy="set {where} and restart the kubelet on the drained node, or set {runtime}.systemd_cgroup = {agrees}",
)


def kubelet_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse the kubelet's runtime another cgroup driver than the kubelet's: two would own the same pods' cgroups."""
    actual = machine.kubelet.configuration
    runtime = "containerd" if settings.containerd.enabled else "crio" if settings.crio.enabled else None
    if actual is None or runtime is None or runtime not in (actual.runtime_endpoint or runtime):
        return
    version = machine.crio.version if runtime == "crio" else _containerd(settings, machine)
    answers = version is None or at_least(version, _ANSWERS_SINCE[runtime])
    if answers and machine.kubelet.version is not None and at_least(machine.kubelet.version, _ASKS_SINCE):
        return
    desired = "systemd" if getattr(settings, runtime).systemd_cgroup else "cgroupfs"
    if actual.cgroup_driver != desired:
        file, agrees = actual.cgroup_driver_file, actual.cgroup_driver == "systemd"
        where = f"cgroupDriver: {desired} in {file}" if file else f"--cgroup-driver={desired} where the kubelet starts"
        yield CGROUP_DRIVER(runtime=runtime, actual=actual.cgroup_driver, desired=desired, where=where, agrees=agrees)


def _containerd(settings: Settings, machine: Machine) -> str | None:
    """Return the desired version, else that of the installed package; None: no package is installed."""
    installed = dict(machine.runtime_packages.installed)
    package = next((installed[name] for name in ("containerd.io", "containerd") if name in installed), None)
    return settings.containerd.version or (upstream(package) if package else None)


STATIC_CPUS = CautionMessage(
    "kubelet-static-cpus",
    component="device_plugin",
    reason="with the kubelet's cpuManagerPolicy static, pods without pass_device_specs lose GPUs as their CPUs change",
    source="NVIDIA/k8s-device-plugin, README, PASS_DEVICE_SPECS",
    remedy="set device_plugin.pass_device_specs = True",
)


def kubelet_cautions(settings: Settings, kubelet: Kubelet) -> Iterator[Caution]:
    """Warn of a kubelet that takes devices from running pods unless the plugin passes them on."""
    actual = kubelet.configuration
    if (
        actual is not None
        and actual.cpu_manager_policy == "static"
        and settings.kubernetes.enabled
        and settings.device_plugin.method != "none"
        and settings.device_plugin.pass_device_specs is not True
    ):
        yield STATIC_CPUS()


LACKS = RefusalMessage(
    "slurm-lacks",
    "The Slurm on the node cannot offer GPUs as the settings require.",
    source=f"slurmd and {FOLDER} of this node",
    detail="The node has no slurmd or slurm.conf, or its Slurm lacks NVML, for example. gpunode installs no Slurm.",
    remedies=("install or configure Slurm as your cluster does, or set slurm.enabled = False",),
)


def slurm_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node without a slurmd or its slurm.conf, or with a Slurm that cannot do what the settings need."""
    if settings.slurm.enabled and (lacking := lacks(settings.slurm, machine.slurm)) is not None:
        reason, remedy = lacking
        yield LACKS(reason=reason, remedy=remedy)


MIG_BY_NUMBER = CautionMessage(
    "slurm-mig-by-number",
    reason="without NVML, Slurm names MIG devices to a job by numbers, of which CUDA takes only the first",
    source="SchedMD/slurm at 22.05.8 (src/common/gres.c: a device's UUID comes from AutoDetect alone); gres.conf(5)",
    remedy="have jobs see no other devices (TaskPlugin=task/cgroup, and ConstrainDevices=yes in cgroup.conf), or use a "
    "Slurm with NVML and slurm.autodetect = 'nvml'",
)


def slurm_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of MIG devices by their numbers, of which CUDA takes only the first."""
    desired = settings.slurm
    if desired.enabled and desired.autodetect == "off" and settings.mig.config is not None:
        yield MIG_BY_NUMBER()


NO_MULTI_NODE_NVLINK = RefusalMessage(
    "imex-no-multi-node-nvlink",
    "The NVLink of the node's GPUs reaches no other machine, so that IMEX has nothing to do.",
    reason="the NVLink of these GPUs ({gpus}) reaches no other machine, so that IMEX has nothing to do",
    source="gpunode/data/pci.yaml, multi_node_nvlink; NVIDIA IMEX guide, supported platforms",
    remedy="set imex.enabled = False on this host, or take it out of the group whose data enables it",
)
NOT_PACKAGED = RefusalMessage(
    "imex-not-of-this-source",
    "This source of the driver has no nvidia-imex.",
    reason="driver.source = '{source}' has no nvidia-imex, which must have exactly the driver's version",
    source="gpunode/data/driver_packages.yaml (packages: imex)",
    remedy="set driver.source = 'cuda-repository', or install nvidia-imex at the driver's version by hand",
)


def imex_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse GPUs whose NVLink ends in the machine, and a driver whose source has no nvidia-imex."""
    gpus = machine.pci.gpus
    if not settings.imex.enabled or machine.is_image or not gpus:
        return
    # A GPU that is in no table may reach other machines.
    if not machine.pci.reaches_other_machines and all(gpu.name is not None for gpu in gpus):
        yield NO_MULTI_NODE_NVLINK(gpus=", ".join(sorted({str(gpu.name) for gpu in gpus})))
        return
    if not settings.driver.installs or any(is_imex(name) for name, _ in machine.driver.packages):
        return
    source = driver_source(settings, machine.operating_system, machine.boot)
    if source is None or "imex" not in source.packages:
        yield NOT_PACKAGED(source=settings.driver.source)


NOTHING_TO_OFFER = RefusalMessage(
    "rdma-nothing-to-offer",
    "The RDMA shared device plugin would have nothing to offer on this node.",
    component=rdma.COMPONENT,
    source="Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, pkg/resources/resources_manager.go and pci_net_device.go",
    detail="None of the node's devices is one of a resource that the settings name, which the plugin would not report.",
    remedies=("correct what the reason names, or disable the plugin for this host",),
)


def rdma_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a node on which the RDMA shared device plugin would offer nothing of a resource, without reporting it."""
    if machine.is_image:
        # The devices are the build machine's.
        return
    for item in rdma.decide(settings.rdma_shared_device_plugin, machine.rdma).findings:
        if item.cause is not None:
            yield NOTHING_TO_OFFER(reason=item.cause, remedy=item.remedy)


ON_THE_HOST = RefusalMessage(
    "dcgm-on-the-host",
    "The host runs a DCGM that gpunode did not install, and the cluster's exporter is enabled.",
    reason="the host runs DCGM that gpunode did not install ({units}): only it or the exporter gets profiling metrics",
    source="systemctl show on the node; NVIDIA/dcgm-exporter issues 7 and 61",
    remedy="`systemctl disable --now {names}`, or set dcgm_exporter_chart.enabled = False; with dcgm.enabled = True "
    "and dcgm_exporter_chart.engine = 'host' the pods use the host's engine",
)
NO_REPOSITORY = RefusalMessage(
    "dcgm-no-repository",
    "NVIDIA has no packages of DCGM for this distribution.",
    reason="NVIDIA has no packages of DCGM for {name}",
    source="gpunode/data/distributions.yaml (repository)",
    remedy="set dcgm.enabled = False",
)
FORMER = RefusalMessage(
    "dcgm-former",
    "DCGM 3 is installed, which conflicts with DCGM 4.",
    source="NVIDIA/DCGM, cmake/packaging.cmake (datacenter-gpu-manager-4-core conflicts with datacenter-gpu-manager)",
    remedy="set dcgm.migrate = True to have it replaced, or dcgm.enabled = False to leave it",
)
IN_PODS = RefusalMessage(
    "dcgm-in-pods",
    "The cluster has DCGM on this node already, and dcgm.enabled is True for the host.",
    reason="pods have DCGM on this node ({pods}): of two engines only one gets profiling metrics",
    source="/var/log/pods of the node; NVIDIA/dcgm-exporter issues 7 and 61",
    remedy="set dcgm.enabled = False, or keep the cluster's exporter from this node (gpu_operator.dcgm_exporter = "
    "False, its chart's nodeSelector, or first a run without dcgm_exporter_chart, which removes gpunode's pods); with "
    "dcgm_exporter_chart.engine = 'host' gpunode's pods use the host's engine",
)


def dcgm_refusals(settings: Settings, machine: Machine) -> Iterator[Refusal]:
    """Refuse a distribution without NVIDIA's packages, DCGM 3 that may not go, and a second DCGM on the node."""
    desired, actual, system = settings.dcgm, machine.dcgm, machine.operating_system
    to_be = Desired(desired, pods=settings.dcgm_exporter_chart.pods)
    if running := second_units(to_be, actual):
        yield ON_THE_HOST(units=", ".join(running), names=" ".join(running))
    if not desired.enabled:
        return
    row = tables.distribution(system.id, system.version_id)
    if row is not None and row.repository is None:
        yield NO_REPOSITORY(name=row.name)
    if (reason := in_the_way(desired, actual)) is not None:
        yield FORMER(reason=reason)
    if pods := second_pods(to_be, actual):
        yield IN_PODS(pods=", ".join(pods))


NOT_PAIRED = CautionMessage(
    "dcgm-not-paired",
    "DCGM and its exporter are set to versions that were not released together.",
    reason="dcgm.version is {dcgm} and dcgm.exporter.version {exporter}, which NVIDIA did not release together",
    source="NVIDIA's documentation, Install DCGM Exporter (gpunode/data/dcgm.yaml, paired)",
    remedy="set dcgm.exporter.version = '{pair}', or leave it out",
)


def dcgm_cautions(settings: Settings, machine: Machine) -> Iterator[Caution]:
    """Warn of an exporter that was not released with the desired DCGM."""
    desired = settings.dcgm
    pair = known().paired.get(desired.version or "")
    if desired.exporter.enabled and pair is not None and desired.exporter.version not in (None, pair):
        yield NOT_PAIRED(dcgm=desired.version, exporter=desired.exporter.version, pair=pair)
