"""Which of the plugin's pods on a node restart, by an earlier release, former MIG devices or a lost registration.

A release whose DaemonSets are OnDelete leaves its pods: gpunode restarts those that their DaemonSet would now make
otherwise, and all of a node that gets another configuration: a pod that runs sees a new entry of its ConfigMap up to a
minute late. The end of an MPS daemon with clients is decided in decide_restart.py.

The plugin registers at the kubelet's socket when it starts. A kubelet that started again, or whose socket was made
again unseen, knows none of its devices: they stay at 0 until the plugin registers again.
source: kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/manager.go: a kubelet that starts counts no device of a
plugin until it registers (readCheckpoint); capacity counts the healthy and the sick, allocatable the healthy
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from gpunode.base.comparison import RESTART
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import Mig
from gpunode.kubernetes.device_plugin.mig_resources import Registered
from gpunode.kubernetes.device_plugin.promise import gpus_of, missing, offered, promised, promised_memory
from gpunode.kubernetes.device_plugin.view import FEATURE_DISCOVERY, MPS_DAEMON, View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import RUN_CLUSTER, cluster_finding
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, LabelChange, wanted_labels
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART
from gpunode.system.gpu import Gpus

_NOT_REGISTERED = "the plugin's pod is ready, and the kubelet does not know its devices: they did not register with it"
_BY_SMI = "nvidia-smi: {status}"
_RESTARTS = f"{RUN_CLUSTER}: the plugin's pod starts again, once"
_LOG, _SEE_DRIVER = (
    "see the log of the plugin's pod on the node",
    "run `nvidia-smi` on the node, and mend what the findings of the driver tell",
)
NOT_REPORTED = "see the node's kubelet: it has not reported since"
LOG_OF_OTHER = "see the log of the device plugin that offers it, on the node"
_ENDS = "device plugin {version} ends at its start on a node with these GPUs and MIG devices: {reason}"
DIVIDE_OTHERWISE = "divide the GPUs otherwise (mig.config), or set another sharing.mig_strategy"
_SEE_ENTRY = f"see the node's entry of your ConfigMap (sharing.config), and {_LOG.removeprefix('see ')}"
ALLOCATABLE = cluster_finding(
    "allocatable",
    "The cluster does not offer as many GPUs of this node as the settings promise.",
    "Allocatable is what the kubelet can give to pods. Pods that need more stay pending. The device plugin has "
    "not registered all devices, the driver does not show them, or sharing and MIG give another number.",
    causes=(_NOT_REGISTERED, _BY_SMI, _ENDS),
    remedies=(_LOG, _RESTARTS, DIVIDE_OTHERWISE, _SEE_ENTRY, _SEE_DRIVER, NOT_REPORTED, LOG_OF_OTHER),
    classes=RESTART,
)


def decide_registered(
    settings: Settings, node: ClusterNode, sets: tuple[str, ...], view: View, mig: Mig, gpus: Gpus | None = None
) -> Decision[tuple[str, ...]]:
    """Return whether a node offers what it promises, and which of the plugin's pods are to begin anew; a change is
    their names.

    A GPU that the plugin itself holds for sick is none of that: the kubelet counts it in the node's capacity.

    + sets: the DaemonSets that the node has its plugin's pods of
    + gpus: what nvidia-smi says of the node's GPUs; the method `gpushare` alone needs it
    """
    names = _well(settings, node, sets, view)
    findings = tuple(_allocatable(settings, node, mig, gpus, names))
    uncounted = tuple(item for item in bad(*findings) if names and _is_uncounted(item, node))
    if not uncounted:
        return Decision(findings)
    step = Step(f"begin {', '.join(names)} anew", uncounted, Disruption.nothing, change=names)
    return Decision(findings, (step,))


def _well(settings: Settings, node: ClusterNode, sets: tuple[str, ...], view: View) -> tuple[str, ...]:
    """Return the plugin's pods on the node where they are ready, and the node is; nothing where one is not.

    Nothing, too, where the node is labelled for another configuration: it offers what that says.
    """
    if settings.device_plugin.method not in (*BY_CHART, "manifest") or not node.ready:
        return ()
    if node.labels.get(CONFIG) != wanted_labels(settings).get(CONFIG):
        return ()
    pods = [view.pod(each, node.name) for each in sets if not each.endswith((MPS_DAEMON, FEATURE_DISCOVERY))]
    ready = [pod.name for pod in pods if pod is not None and pod.ready]
    return tuple(ready) if len(ready) == len(pods) else ()


def _is_uncounted(item: Finding, node: ClusterNode) -> bool:
    """Say whether the kubelet does not know devices that the node has: it counts too few of them in its capacity.

    Of a plugin that ended it counts them for five minutes as sick, as it counts those that the plugin itself holds for
    sick; which of the two it is nobody can tell, and a plugin that begins anew would offer sick GPUs again.
    source: kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/manager.go (GetCapacity, markResourceUnhealthy)
    """
    # A plugin that would end at its start may still serve what it found before: a restart would take that away.
    if item.finding_class is not FindingClass.DRIFT or item.remedy == DIVIDE_OTHERWISE:
        return False
    resource = ALLOCATABLE.named(item)
    if resource is None:
        return True
    desired, counted = int(item.desired or "0"), node.capacity.get(resource, "0")
    return counted.isdecimal() and int(counted) < desired


def promise(settings: Settings, mig: Mig, gpus: Gpus | None) -> tuple[Registered | None, str]:
    """Return what the node is to offer, None where nobody can say; and what nvidia-smi said.

    Not for a ConfigMap of the user's own (device_plugin.config_name), of which gpunode reads no sharing.
    """
    if settings.device_plugin.method == "gpushare":
        memory = None if gpus is None else promised_memory(gpus, settings.gpushare.memory_unit)
        return None if memory is None else Registered(memory), "not asked" if gpus is None else gpus.status
    actual = offered(mig, settings.sharing.mig_strategy)
    version = settings.device_plugin.program_version
    return (None if actual is None else promised(settings.sharing, actual, version)), mig.status


def _allocatable(
    settings: Settings, node: ClusterNode, mig: Mig, gpus: Gpus | None, well: tuple[str, ...]
) -> Iterator[Finding]:
    if settings.device_plugin.config_name is not None:
        yield from _by_own_config_map(node, mig)
        return
    promised, status = promise(settings, mig, gpus)
    if promised is None:
        yield _unknown(status)
        return
    if promised.ends is not None:
        cause = _ENDS.format(version=settings.device_plugin.program_version, reason=promised.ends)
        yield ALLOCATABLE.compared(_told(node), "GPUs or MIG devices", False, cause=cause, remedy=DIVIDE_OTHERWISE)
        return
    desired = promised.resources
    wrong = missing(desired, node.allocatable)
    for name in sorted({*desired, *wrong}):
        actual, count = wrong.get(name, (str(desired.get(name)), desired.get(name, 0)))
        item = ALLOCATABLE.compared(actual or "0", count, name not in wrong, of=name)
        yield replace(item, cause=_NOT_REGISTERED, remedy=_RESTARTS) if well and _is_uncounted(item, node) else item


def _told(node: ClusterNode) -> str | None:
    """Return what a node offers of GPUs, for people; None where it offers none."""
    return ", ".join(f"{name}: {count}" for name, count in gpus_of(node.allocatable).items()) or None


def _by_own_config_map(node: ClusterNode, mig: Mig) -> Iterator[Finding]:
    """Yield whether a node offers anything of what it has, under whatever name and as often as it may."""
    actual = offered(mig, "mixed")
    if actual is None:
        yield _unknown(mig.status)
    elif actual.whole or actual.devices:
        said = _told(node)
        yield ALLOCATABLE.compared(said, "GPUs or MIG devices", said is not None, remedy=_SEE_ENTRY)


def _unknown(status: str) -> Finding:
    return ALLOCATABLE.not_known("the node's devices", _BY_SMI.format(status=status), _SEE_DRIVER)


STALE_PODS = cluster_finding(
    "pods that know former MIG devices",
    "Pods hold MIG devices that are no longer there.",
    "The device plugin offers devices that no program can open until its pod restarts.",
    cause="they started before the MIG layout changed",
)


def decide_current(
    settings: Settings, node: str, sets: tuple[str, ...], view: View, boot: MigBoot
) -> Decision[tuple[str, ...]]:
    """Return which of the plugin's pods on a node are to begin anew; a change is their names.

    + sets: the DaemonSets that the node has its plugin's pods of
    + boot: what says when a change of the layout was recorded last
    """
    if settings.mig.config is None or settings.device_plugin.method not in (*BY_CHART, "manifest"):
        return Decision(())
    names = tuple(pod.name for pod in view.stale_plugins(sets, node, boot.recorded_at or 0))
    said = ", ".join(names)
    item = STALE_PODS.compared(said or None, "none", not names)
    step = Step(f"begin {said} anew", (item,), Disruption.nothing, change=names)
    return Decision((item,), (step,) if names else ())


OUTDATED_PODS = cluster_finding(
    "pods of an earlier release",
    "Pods of the device plugin still run by an earlier release.",
    "They are replaced node by node, because their MPS daemons restart under clients.",
    cause="the release has changed since they started",
    classes=RESTART,
)


def decide_outdated(
    settings: Settings, node: ClusterNode, view: View, label: LabelChange | None = None
) -> Decision[tuple[str, ...]]:
    """Return which of the plugin's pods on a node are to begin anew; a change is their names.

    Nothing is found where the controller begins them anew by itself.

    + label: what is to be done about the node's labels before; None: nothing
    """
    sets = sets_that_stay(settings, view)
    if not sets:
        return Decision(())
    outdated = tuple(pod.name for pod in view.outdated(sets, node.name))
    said = ", ".join(outdated) or None
    found = OUTDATED_PODS.compared(said, "none", not outdated)
    follows = label is not None and CONFIG in label.to_set and label.to_set[CONFIG] != node.labels.get(CONFIG)
    every = tuple(pod.name for pod in view.pods if pod.daemon_set in sets and pod.node == node.name and not pod.leaves)
    names = every if follows else outdated
    step = Step(f"begin {', '.join(names)} anew", bad(found), Disruption.nothing, change=names)
    return Decision((found,), (step,) if names else ())


def sets_that_stay(settings: Settings, view: View) -> tuple[str, ...]:
    """Return the names of the release's DaemonSets whose pods stay as they are until somebody ends them."""
    if settings.device_plugin.method not in BY_CHART:
        return ()
    staying = {each.name for each in view.daemon_sets if each.stays}
    return tuple(name for name in view.plugin_sets(settings.device_plugin.release) if name in staying)


def restarts_daemon(names: Sequence[str], view: View) -> bool:
    """Say whether one of the pods is an MPS daemon's."""
    return any(pod.name in names and (pod.daemon_set or "").endswith(MPS_DAEMON) for pod in view.pods)


def still_coming(settings: Settings, node: str, view: View, removed: Sequence[str]) -> Iterator[str]:
    """Yield what is missing on a node whose pods were removed; nothing where all of them are back and ready."""
    plugin, shares = settings.device_plugin, settings.sharing.strategy == "mps"
    labels = view.nodes[node].labels if node in view.nodes else {}
    if plugin.gfd and plugin.config_name is None and not shares and labels.get(MPS_CAPABLE) == "true":
        # While it stands the release takes the node for one with a daemon, and goes on as long as one is left.
        yield f"GPU feature discovery has not taken {MPS_CAPABLE} off the node"
    for pod in view.pods:
        if pod.name in removed:
            yield f"{pod.name} has not ended"
    for name in sets_that_stay(settings, view):
        # A node that shares its GPUs otherwise has no daemon; where the others are, the labels of the node say.
        if name.endswith(FEATURE_DISCOVERY) or (name.endswith(MPS_DAEMON) and not shares):
            continue
        found = view.pod(name, node)
        if found is None or found.name in removed:
            yield f"{name} has no pod on the node"
        elif not found.ready:
            yield f"{found.name} is {found.phase}, not ready{f': {found.waits}' if found.waits else ''}"
