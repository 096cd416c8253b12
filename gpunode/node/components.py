"""The components of a node, in order: for each, what is to be done about it, and which files are gpunode's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gpunode.base.decision import Decision, Step, bad, behind, is_forbidden, marked
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.components.cuda import decide as cuda
from gpunode.components.cuda import state as cuda_files
from gpunode.components.dcgm import decide as dcgm
from gpunode.components.dcgm import state as dcgm_files
from gpunode.components.driver import decide as driver
from gpunode.components.driver.flavour import wanted_driver
from gpunode.components.driver.loading import LOADED_MODULE, MODULE_ON_DISK
from gpunode.components.driver.sides import Actual, desired
from gpunode.components.imex import decide as imex
from gpunode.components.kubelet import decide as kubelet
from gpunode.components.mig import decide as mig
from gpunode.components.mps import decide as mps
from gpunode.components.mps.daemon import daemons
from gpunode.components.power import decide as power
from gpunode.components.rdma import decide as rdma
from gpunode.components.runtimes.containerd import decide as containerd
from gpunode.components.runtimes.containerd import own_files as containerd_files
from gpunode.components.runtimes.containerd.companions import own_program
from gpunode.components.runtimes.crio import decide as crio
from gpunode.components.runtimes.docker import decide as docker
from gpunode.components.runtimes.podman import decide as podman
from gpunode.components.runtimes.toolkit import decide as toolkit
from gpunode.components.runtimes.toolkit import state as toolkit_files
from gpunode.components.runtimes.toolkit.specification import judge_readers
from gpunode.components.slurm import decide as slurm
from gpunode.kubernetes.mig_label import asks
from gpunode.node import Node
from gpunode.node.machine import Machine, resolved
from gpunode.node.own_files import decide as files
from gpunode.node.own_files import driver as driver_files
from gpunode.node.own_files import holds
from gpunode.node.own_files import repositories as repository_files
from gpunode.packages import repositories
from gpunode.settings import Settings
from gpunode.system import exposed, transaction
from gpunode.system.applied import OwnFile


def _containerd(settings: Settings, node: Node) -> Decision[Any]:
    return containerd.decide(containerd.desired_of(settings), node.containerd, node.sysctls)


def _driver(settings: Settings, node: Node) -> Decision[Any]:
    actual = Actual(node.driver, node.boot, node.pci, node.gpus, node.health, node.operating_system)
    return driver.decide(desired(settings, node.operating_system, node.boot, node.pci), actual)


def _toolkit(settings: Settings, node: Node) -> Decision[Any]:
    if settings.toolkit.enabled:
        desired = toolkit.desired_of(settings, node.operating_system, own_program(node.containerd))
        decision = toolkit.decide(desired, node.toolkit, node.driver, node.mig)
        readers = {"containerd": node.containerd.version, "podman": node.podman.version, "crio": node.crio.version}
        unread = judge_readers(node.toolkit, readers) if desired.cdi else ()
        return replace(decision, findings=(*decision.findings, *unread))
    # One that gpunode does not manage keeps containers from their start all the same.
    used = {each.binary for each in node.containerd.runtimes} | {path for _, path in node.docker.runtimes}
    return Decision(tuple(toolkit.judge_values({}, node.toolkit)) if node.toolkit.runtime_path in used - {None} else ())


def _repositories(settings: Settings, node: Node) -> Decision[Any]:
    desired = repositories.desired_of(settings, node.operating_system)
    return repositories.decide(desired, node.keyrings, node.apt_sources.errors)


def _podman(settings: Settings, node: Node) -> Decision[Any]:
    return podman.decide(podman.desired_of(settings), node.podman, node.toolkit.version)


def _imex(settings: Settings, node: Node) -> Decision[Any]:
    desired = imex.Desired(settings.imex, Disruption[settings.disruption.allow], settings.driver.installs)
    return imex.decide(desired, node.imex, node.driver)


def _slurm(settings: Settings, node: Node) -> Decision[Any]:
    desired = slurm.Desired(settings.slurm, Disruption[settings.disruption.allow])
    return slurm.decide(desired, node.slurm, node.mig)


def _power(settings: Settings, node: Node) -> Decision[Any]:
    desired = power.Desired(settings.power, Disruption[settings.disruption.allow], node.driver.reboot_pending)
    return power.decide(desired, node.power, node.gpus)


def _rdma(settings: Settings, node: Node) -> Decision[Any]:
    decision = rdma.decide(settings.rdma_shared_device_plugin, node.rdma)
    # Preflight refuses it; a run that came by it stops for nothing that it does not do itself.
    return Decision(decision.findings)


def _kubelet(settings: Settings, node: Node) -> Decision[Any]:
    desired = kubelet.Desired(settings.kubernetes.kubelet, Disruption[settings.disruption.allow])
    return kubelet.decide(desired, node.kubelet)


def _dcgm(settings: Settings, node: Node) -> Decision[Any]:
    driver = wanted_driver(settings, node.pci.gpus, node.driver, node.operating_system)
    cuda = dcgm.cuda_of(driver.version or driver.branch)
    return dcgm.decide(dcgm.Desired(settings.dcgm, cuda, settings.dcgm_exporter_chart.pods), node.dcgm)


def _node(settings: Settings, node: Node) -> Decision[Any]:
    """Decide on what is no component's: files that others may write, and changes that were cut off."""
    driver = settings.driver
    desired = {
        "driver": driver.enabled and (driver.removes or driver.source != "present"),
        "initramfs": driver.enabled and not driver.removes,
        "cuda": settings.cuda.enabled,
        "containerd": settings.containerd.enabled,
        "docker": settings.docker.enabled,
        "crio": settings.crio.enabled,
        "mig": node.has_gpu,
    }
    left = transaction.decide(node.interrupted, [name for name, comes in desired.items() if not comes])
    files = exposed.decide(node.exposed, repositories.desired_of(settings, node.operating_system))
    return Decision((*files.findings, *left.findings), (*files.steps, *left.steps))


def _mps(settings: Settings, node: Node) -> Decision[Any]:
    desired, allowed = settings.mps, Disruption[settings.disruption.allow]
    every = daemons(desired, range(len(node.pci.gpus))) if desired.enabled else ()
    by_plugin = settings.kubernetes.enabled and settings.sharing.strategy == "mps"
    # Without the control program a run can only bring it with a driver.
    comes = node.mps.program is None and bool(every) and settings.driver.installs
    comes = comes and any(item.code == MODULE_ON_DISK.code for item in bad(*_driver(settings, node).findings))
    to_be = mps.Desired(every, desired, allowed, by_plugin, comes)
    return mps.decide(to_be, node.mps, node.gpus.gpus, node.plugin_mps.mps_processes)


def _mig(settings: Settings, node: Node) -> Decision[Any]:
    allowed = Disruption[settings.disruption.allow]
    desired = mig.Desired(settings.mig, node.pci.gpus, allowed, settings.kubernetes.enabled)
    pending, comes = node.driver.reboot_pending, settings.driver.enabled
    # What a run ends before it comes to MIG holds no GPU any more: MPS that is to go, everything where it boots.
    early = [each for each in _driver(settings, node).steps if each.disruption is Disruption.reboot and comes]
    boots = any(step.waits is None for step in early)
    goes = "nvidia-mps" if not settings.mps.enabled else "-"
    stays = () if boots else tuple(each for each in node.mig.holders if not (each.unit or "").startswith(goes))
    actual = replace(node.mig, holders=stays)
    if not pending and any(item.code == LOADED_MODULE.code for step in early for item in step.settles) and not boots:
        # Behind packages of another driver nvidia-smi answers nothing before the boot.
        pending, actual = True, replace(actual, status="mismatch")
    return mig.decide(desired, mig.Actual(actual, node.mig_boot, node.containers, pending, driver_comes=comes))


class Files(Protocol):
    """Be what knows gpunode's own files of a component: their paths, and their texts for settings and a machine."""

    @property
    def PATHS(self) -> tuple[str, ...]: ...

    def files(self, settings: Settings, machine: Machine, /) -> dict[str, str | None]: ...


@dataclass(frozen=True)
class Component:
    """Hold one component: by the name of its settings, where it has such.

    decide: what is to be done about it, by settings resolved for the node's system
    own_files: what knows its files
    files_first: whether a run writes these before it comes to what it may refuse
    is_always_judged: also where it is switched off: a run removes what gpunode set up of it, and what stops containers
    or CUDA programs is found
    """

    name: str
    decide: Callable[[Settings, Node], Decision[Any]]
    own_files: tuple[Files, ...] = ()
    files_first: bool = False
    is_always_judged: bool = False


# In the order in which a run works; drift and plan tell of them in the same one.
COMPONENTS = (
    Component("repositories", _repositories, (repository_files,)),
    Component("driver", _driver, (driver_files, holds), is_always_judged=True),
    Component("cuda", lambda settings, node: cuda.decide(cuda.desired_of(settings), node.cuda), (cuda_files,)),
    Component("imex", _imex, is_always_judged=True),
    Component("mig", _mig, is_always_judged=True),
    Component("mps", _mps, is_always_judged=True),
    Component("power", _power, is_always_judged=True),
    Component("toolkit", _toolkit, (toolkit_files,), is_always_judged=True),
    Component("containerd", _containerd, (containerd_files,), files_first=True),
    Component("docker", lambda settings, node: docker.decide(docker.desired_of(settings), node.docker)),
    Component("podman", _podman, (podman,)),
    Component("crio", lambda settings, node: crio.decide(crio.desired_of(settings), node.crio)),
    Component("slurm", _slurm, is_always_judged=True),
    Component("rdma_shared_device_plugin", _rdma),
    Component("kubelet", _kubelet, is_always_judged=True),
    Component("dcgm", _dcgm, (dcgm_files,), is_always_judged=True),
    Component("node", _node),
)
_BY_NAME = {component.name: component for component in COMPONENTS}
# Every path that may be in `desired_files`: a node is asked of these, whatever its record says.
PATHS = tuple(path for component in COMPONENTS for files_of in component.own_files for path in files_of.PATHS)


def in_order(settings: Settings) -> tuple[str, ...]:
    """Return the names of the components in the order in which a run works by these settings."""
    names = [component.name for component in COMPONENTS]
    if not settings.mps.enabled:
        # A daemon that is to go holds its GPU, one that is to come serves GPUs that are whole again.
        first, second = names.index("mig"), names.index("mps")
        names[first], names[second] = "mps", "mig"
    return tuple(names)


NO_CLUSTER = "it waits for the cluster, which does not answer"
_ASK_CLUSTER = "let the cluster answer (`gpunode drift` reports why it does not), then run deploys/gpu_node.py again"


def _without_cluster(name: str, settings: Settings, node: Node, decision: Decision[Any]) -> Decision[Any]:
    """Return the decision of a node whose cluster does not answer: what needs the cluster waits.

    A drain needs it, and so does MIG: its configuration may be a label, and the device plugin's pods hold the GPUs.
    Where no container runs, there is nothing to drain.
    """
    if name == "mig" and asks(settings):
        return Decision((mig.CONFIGURATION.not_known("by the node's label", NO_CLUSTER, _ASK_CLUSTER),))
    if not node.containers:
        return decision
    drains = settings.kubernetes.drains and is_felt(name, decision)

    def late(step: Step[Any]) -> bool:
        if name == "mig" and (step.change is None or step.change.takes):
            return True
        return drains and step.disruption > Disruption.nothing

    return behind(decision, NO_CLUSTER, late)


def is_felt(name: str, decision: Decision[Any]) -> bool:
    """Return whether workloads feel what a component's steps disturb: a node is drained for such steps alone."""
    return name not in ("imex", "mps", "slurm") or any(step.felt for step in decision.steps)


def decisions(
    settings: Settings,
    node: Node,
    unjudged: Callable[[str, Exception], Finding] | None = None,
    no_cluster: bool = False,
) -> dict[str, Decision[Any]]:
    """Return component -> decision, in order, of each that is enabled; settings resolved for the node's system.

    A run stops at the first that is refused, and comes to no component after it.

    unjudged: makes the finding of a component, by its name, whose decision raises an error; None: raise the error
    no_cluster: whether the node is in a cluster that does not answer
    """
    decided: dict[str, Decision[Any]] = {}
    for name in in_order(settings):
        if _BY_NAME[name].is_always_judged or getattr(getattr(settings, name, None), "enabled", True):
            try:
                own = _BY_NAME[name].decide(settings, node)
            except Exception as error:
                if unjudged is None:
                    raise
                own = Decision((unjudged(name, error),), refusal=f"{name} cannot be judged")
            if not settings.disruption.retry:
                own = transaction.refuse_failed(own, node.interrupted.failed)
            own = _without_cluster(name, settings, node, own) if no_cluster else own
            stop = _stop(decided)
            decided[name] = marked(own if stop is None or name == "node" else behind(own, stop[1]))
    return decided


def _stop(decided: Mapping[str, Decision[Any]]) -> tuple[str, str] | None:
    """Return the component at which a run stops, and why, in a sentence; None where it comes to all of them."""
    for name, decision in decided.items():
        if decision.refusal is not None:
            reason = decision.refusal.partition(". ")[0].removesuffix("; nothing was changed")
            return name, f"a run stops at {name} before it comes to this: {reason}"
    return None


def _is_late(settings: Settings, stop: str) -> Callable[[Step[Any]], bool]:
    """Return what says of a step of own files whether it comes behind the component at which a run stops."""
    names, component = in_order(settings), _BY_NAME[stop]
    later = names[names.index(stop) + 1 :]
    own = () if component.files_first else [path for each in component.own_files for path in each.PATHS]

    def late(step: Step[Any]) -> bool:
        (item,) = step.settles
        return item.component in later or files.FILES[item.component].named(item) in own

    return late


def desired_files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return path -> the text that a run of these settings leaves there; None: that it leaves no such file.

    Of other paths a run says nothing: what is there stays. The node is one that preflight accepts. What follows from
    the packages that are there (what a hold says), and what belongs to a transaction of its own (MPS, MIG), is judged
    by its component.
    """
    own = resolved(settings, machine)
    every = (each for component in COMPONENTS for each in component.own_files)
    return {path: text for each in every for path, text in each.files(own, machine).items()}


def own_files(
    desired: Settings, node: Node, decided: Mapping[str, Decision[Any]], kept: Mapping[str, OwnFile] | None = None
) -> Decision[Any]:
    """Decide on gpunode's own files, behind all others, which tell of some of them already; as for `judge`."""
    told = [item for decision in decided.values() for item in decision.findings]
    settings = resolved(desired, node)
    waits = is_forbidden(Disruption.restart, Disruption[settings.disruption.allow], node.containerd.shims)
    places = tuple(
        files.Place(path, component.name, getattr(each, "TOLD", ()))
        for component in COMPONENTS
        for each in component.own_files
        for path in each.PATHS
    )
    to_be = files.Desired(desired_files(desired, node), desired, kept, waits, places)
    decision = files.decide(to_be, node.applied, told)
    if (stop := _stop(decided)) is not None:
        decision = behind(decision, stop[1], _is_late(settings, stop[0]))
    # MPS is one transaction: while a restart waits, all of it does.
    reason = next((step.waits for step in decided["mps"].steps), None)
    if reason is None:
        return decision
    waiting = {
        item: mps.waiting(item, reason) for item in decision.findings if item.component == "mps" and not item.by_person
    }
    steps = []
    for step in decision.steps:
        item = waiting.get(step.settles[0])
        own = step if item is None else replace(step, settles=(item,), disruption=Disruption.restart, waits=reason)
        steps.append(own)
    return Decision(tuple(waiting.get(item, item) for item in decision.findings), tuple(steps))
