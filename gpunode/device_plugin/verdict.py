"""Does the cluster offer what a node's settings promise? Pure: settings, the node's MIG and the cluster's view in."""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.device_plugin.labels import given_up, owned, wanted_labels
from gpunode.device_plugin.mig_state import offered
from gpunode.device_plugin.nodes import ClusterNode
from gpunode.device_plugin.promise import missing, promised
from gpunode.device_plugin.rollout import BY_CHART
from gpunode.device_plugin.view import FEATURE_DISCOVERY, MPS_DAEMON, View
from gpunode.findings import Finding, FindingClass
from gpunode.mig.state import Mig
from gpunode.settings import Settings
from gpunode.verify.comparison import compared
from gpunode.verify.subject import Subject

COMPONENT = "device_plugin"
_RUN = "run deploys/device_plugin.py"


def judge_node(settings: Settings, name: str, state: str | None, mig: Mig, view: View) -> tuple[Finding, ...]:
    """Return one finding per thing that the cluster is to have of a node; `state` is its MIG configuration's.

    A host whose GPUs do not get into the cluster by gpunode has none.
    """
    if not settings.kubernetes.enabled or settings.device_plugin.way not in BY_CHART:
        return ()
    node = view.nodes.get(name)
    if node is None:
        remedy = "let it join the cluster, or set kubernetes.node_name to its name there"
        return (compared(COMPONENT, Subject.CLUSTER_NODE, None, name, False, remedy),)
    return (
        _ready(node),
        *_labels(settings, node, state),
        *_pods(settings, node, view),
        *_allocatable(settings, node, mig),
    )


def _ready(node: ClusterNode) -> Finding:
    found = "Ready" if node.ready else "not Ready"
    remedy = f"see `kubectl describe node {node.name}`, and the node's kubelet"
    return compared(COMPONENT, Subject.CLUSTER_NODE, found, "Ready", node.ready, remedy)


def _labels(settings: Settings, node: ClusterNode, state: str | None) -> Iterator[Finding]:
    wanted, ours = wanted_labels(settings, state), owned(node.ours) - set(given_up(settings))
    for name, value in wanted.items():
        found = node.labels.get(name)
        foreign = found is not None and found != value and name not in ours
        cause = "it is somebody else's, whom gpunode does not overrule" if foreign else None
        remedy = f"find out who sets it, or `kubectl label node {node.name} {name}-`" if foreign else _RUN
        yield compared(COMPONENT, Subject.LABEL.of(name), found, value, found == value, remedy, cause)
    for name in sorted(ours - wanted.keys()):
        if name in node.labels:
            yield compared(COMPONENT, Subject.LABEL.of(name), node.labels[name], "none", False, _RUN)


def _pods(settings: Settings, node: ClusterNode, view: View) -> Iterator[Finding]:
    plugin = settings.device_plugin
    sets = view.plugin_sets(plugin.release)
    if not any(not each.endswith((MPS_DAEMON, FEATURE_DISCOVERY)) for each in sets):
        yield compared(
            COMPONENT, Subject.RELEASE.of(f"{plugin.namespace}/{plugin.release}"), None, "there", False, _RUN
        )
    for each in sets:
        if each.endswith(MPS_DAEMON) and settings.sharing.strategy != "mps":
            continue
        pod = view.pod(each, node.name)
        found = None if pod is None else "ready" if pod.ready else pod.phase
        remedy = f"see `kubectl --namespace {plugin.namespace} describe pods`, and the plugin's log"
        cause = None if pod is None else pod.waits
        yield compared(COMPONENT, Subject.POD.of(each), found, "ready", found == "ready", remedy, cause)


def _allocatable(settings: Settings, node: ClusterNode, mig: Mig) -> Iterator[Finding]:
    there = offered(mig, settings.sharing.mig_strategy)
    if there is None:
        cause = f"nvidia-smi: {mig.status}"
        yield Finding(COMPONENT, FindingClass.ERROR, Subject.ALLOCATABLE, "unknown", "known", cause, "see the driver")
        return
    wanted = promised(settings.sharing, *there)
    wrong = missing(wanted, node.allocatable)
    for name in sorted({*wanted, *wrong}):
        found, count = wrong.get(name, (str(wanted.get(name)), wanted.get(name, 0)))
        remedy = "see the log of the plugin's pod on the node"
        yield compared(COMPONENT, Subject.ALLOCATABLE.of(name), found or "0", count, name not in wrong, remedy)


def comes_by_itself(finding: Finding) -> bool:
    """Say whether it is worth waiting for: readiness and resources come, labels do not."""
    return not finding.what.startswith((Subject.LABEL, Subject.RELEASE)) and finding.wanted is not None
