"""What is to be done where a plugin's pod is well, and the kubelet does not count the GPUs: the pod begins anew.

The plugin registers at the kubelet's socket when it starts. A kubelet that began anew beside it, or a socket that was
made anew unseen, knows none of its devices: they stay at 0 until the plugin registers again.

source: kubernetes/kubernetes, pkg/kubelet/cm/devicemanager/manager.go: a kubelet that starts counts no device of a
plugin until it registers (readCheckpoint); capacity counts the healthy and the sick, allocatable the healthy
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpunode.base.comparison import RESTART
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.state import Mig
from gpunode.kubernetes.device_plugin.promise import gpus_of, missing, offered, promised, promised_memory
from gpunode.kubernetes.device_plugin.view import FEATURE_DISCOVERY, MPS_DAEMON, View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import RUN_CLUSTER, cluster_finding
from gpunode.kubernetes.nodes.labels import CONFIG, wanted_labels
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
_SEE_ENTRY = f"see the node's entry of your ConfigMap (sharing.config), and {_LOG.removeprefix('see ')}"
ALLOCATABLE = cluster_finding(
    "allocatable",
    "The cluster does not offer as many GPUs of this node as the settings promise.",
    "Allocatable is what the kubelet can give to pods. Pods that need more stay pending. The device plugin has "
    "not registered all devices, the driver does not show them, or sharing and MIG give another number.",
    causes=(_NOT_REGISTERED, _BY_SMI),
    remedies=(_LOG, _RESTARTS, _SEE_ENTRY, _SEE_DRIVER, NOT_REPORTED, LOG_OF_OTHER),
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
    if item.finding_class is not FindingClass.DRIFT:
        return False
    resource = ALLOCATABLE.named(item)
    if resource is None:
        return True
    desired, counted = int(item.desired or "0"), node.capacity.get(resource, "0")
    return counted.isdecimal() and int(counted) < desired


def promise(settings: Settings, mig: Mig, gpus: Gpus | None) -> tuple[Mapping[str, int] | None, str]:
    """Return what the node is to offer, None where nobody can say; and what nvidia-smi said.

    Not for a ConfigMap of the user's own (device_plugin.config_name), of which gpunode reads no sharing.
    """
    if settings.device_plugin.method == "gpushare":
        status = "not asked" if gpus is None else gpus.status
        return (None if gpus is None else promised_memory(gpus, settings.gpushare.memory_unit)), status
    actual = offered(mig, settings.sharing.mig_strategy)
    return (None if actual is None else promised(settings.sharing, *actual)), mig.status


def _allocatable(
    settings: Settings, node: ClusterNode, mig: Mig, gpus: Gpus | None, well: tuple[str, ...]
) -> Iterator[Finding]:
    if settings.device_plugin.config_name is not None:
        yield from _by_own_config_map(node, mig)
        return
    desired, status = promise(settings, mig, gpus)
    if desired is None:
        yield _unknown(status)
        return
    wrong = missing(desired, node.allocatable)
    for name in sorted({*desired, *wrong}):
        actual, count = wrong.get(name, (str(desired.get(name)), desired.get(name, 0)))
        item = ALLOCATABLE.compared(actual or "0", count, name not in wrong, of=name)
        yield _forgotten(name, actual or "0", count) if well and _is_uncounted(item, node) else item


def _forgotten(name: str, actual: str, count: int) -> Finding:
    return ALLOCATABLE.compared(actual, count, False, of=name, cause=_NOT_REGISTERED, remedy=_RESTARTS)


def _by_own_config_map(node: ClusterNode, mig: Mig) -> Iterator[Finding]:
    """Yield whether a node offers anything of what it has, under whatever name and as often as it may."""
    actual = offered(mig, "mixed")
    if actual is None:
        yield _unknown(mig.status)
    elif any(actual):
        found = gpus_of(node.allocatable)
        said = ", ".join(f"{name}: {count}" for name, count in found.items()) or None
        yield ALLOCATABLE.compared(said, "GPUs or MIG devices", bool(found), remedy=_SEE_ENTRY)


def _unknown(status: str) -> Finding:
    return ALLOCATABLE.not_known("the node's devices", _BY_SMI.format(status=status), _SEE_DRIVER)
