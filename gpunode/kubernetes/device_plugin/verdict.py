"""Does the cluster offer what a node's settings promise? Pure: settings, the node's MIG and the cluster's view in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpunode.base.comparison import RESTART, FindingMessage
from gpunode.base.decision import Decision, bad, marked
from gpunode.base.findings import Finding
from gpunode.base.messages import Scope
from gpunode.base.reading import Unknown
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import Mig
from gpunode.components.mps.plugin import PluginMps
from gpunode.kubernetes.device_plugin.decide_labels import (
    DESCRIBE_NODE,
    FEATURE_LABEL,
    FEATURE_LABELS,
    LABEL,
    NODE,
    decide_labels,
    desired_labels,
    judge_feature_labels,
)
from gpunode.kubernetes.device_plugin.decide_pods import (
    ALLOCATABLE,
    DIVIDE_OTHERWISE,
    LOG_OF_OTHER,
    NOT_REPORTED,
    OUTDATED_PODS,
    decide_current,
    decide_outdated,
    decide_registered,
    promise,
)
from gpunode.kubernetes.device_plugin.decide_restart import NONE, behind_restart, waits, with_restart
from gpunode.kubernetes.device_plugin.judge_mps import ANSWERS, COMPUTE_MODE, PLUGIN_MPS, judge_mps
from gpunode.kubernetes.device_plugin.methods import daemon_set_name
from gpunode.kubernetes.device_plugin.promise import GPU_MEMORY, gpus_of
from gpunode.kubernetes.device_plugin.view import FEATURE_DISCOVERY, MPS_DAEMON, View
from gpunode.kubernetes.gpu_operator import judge_mig_manager
from gpunode.kubernetes.gpushare.decide import EXTENDER, NAMESPACE, PLUGIN
from gpunode.kubernetes.helm.change import RELEASE
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import ANNOTATION, RUN_CLUSTER, cluster_finding
from gpunode.kubernetes.nodes.extended_resources import EXTENDED_RESOURCE, ResourceChange, decide_resources
from gpunode.kubernetes.nodes.labels import PLUGIN_LABEL, configuration
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART, expected_resources
from gpunode.system.gpu import Gpus

# What is missing as a whole does not come by itself.
_THERE = "there"

_DESCRIBE_EXTENDER = (
    f"see `kubectl --namespace {NAMESPACE} describe deployment {EXTENDER}`: it runs on a control-plane node"
)
_DESCRIBE = "see `kubectl --namespace {namespace} describe pods`, and the plugin's log"
DEPLOYMENT = cluster_finding(
    "Deployment",
    "gpushare's scheduler extender is missing or not ready.",
    "The scheduler queries it for GPUs with free memory. Without it, pods that share a GPU stay pending.",
    remedies=(RUN_CLUSTER, _DESCRIBE_EXTENDER),
    scope=Scope.CLUSTER,
)
DAEMON_SET = cluster_finding(
    "DaemonSet",
    "A DaemonSet that is to run on GPU nodes is missing or not ready.",
    "The device plugin, the exporter or another plugin runs by it, a pod on each GPU node.",
    scope=Scope.CLUSTER,
)
POD = cluster_finding(
    "pod of",
    "The device plugin's pod on this node is missing or not ready.",
    "It registers the GPUs with the kubelet. Without it the node offers no GPU after the kubelet's next start.",
    name="pod",
    remedies=(_DESCRIBE,),
    classes=RESTART,
)
IMAGE = cluster_finding(
    "image of",
    "A pod of the device plugin runs another image than the settings ask for.",
    "The digest of the running container is not that of the release. The node has an older image, or a tag was moved.",
    name="image",
    classes=RESTART,
)
# What follows from a node's labels, its configuration among them; and what follows from a release.
_CONFIGURED = (ALLOCATABLE, PLUGIN_MPS, COMPUTE_MODE, FEATURE_LABEL, FEATURE_LABELS)
_RELEASED = (IMAGE, FEATURE_LABEL, FEATURE_LABELS)


def judge_node(
    settings: Settings,
    name: str,
    state: str | Unknown | None,
    mig: Mig,
    view: View,
    gpus: Gpus | None = None,
    boot: MigBoot | None = None,
    restart: Decision[str] = NONE,
    mps: PluginMps | None = None,
    release: Decision[str] = NONE,
) -> tuple[Finding, ...]:
    """Return one finding per thing that the cluster is to have of a node; `state` as `desired_labels` has it.

    A host whose GPUs do not get into the cluster by gpunode has none, but for labels that a run takes off it.

    + gpus: what nvidia-smi says of the node's GPUs; the method `gpushare` and GPU feature discovery need it, and what
      is judged of MPS
    + boot: what brings the node's MIG layout back; needed where one is asked for
    + restart: what comes before a change of its labels, where that restarts an MPS daemon with clients
    + mps: the plugin's MPS daemons on the node; None where nobody asked them
    + release: what comes before the release changes, as `restart`
    """
    if not settings.kubernetes.enabled:
        return ()
    node = view.nodes.get(name)
    labels = marked(with_restart(decide_labels(desired_labels(name, settings, state), node), restart)).findings
    if node is None:
        return labels
    others = tuple(_offered(node, expected_resources(settings), LOG_OF_OTHER))
    if any(PLUGIN_LABEL in item.what for item in bad(*labels)):
        # The label by which another plugin comes to the node waits with the rest.
        others = _behind(restart, others, (ALLOCATABLE,))
    exporter = tuple(_of_exporter(settings, node, view))
    # What is not counted yet is a finding of decide_resources.
    by_settings = settings.kubernetes.extended_resources.items()
    counted = {name: count for name, count in by_settings if node.capacity.get(name) == str(count)}
    by_kubelet = _offered(node, counted, NOT_REPORTED)
    by_hand = (*marked(resources_of(settings, node)).findings, *by_kubelet, *others, *exporter)
    if settings.device_plugin.method == "none":
        return (*labels, *by_hand)
    of_pods = (_pods if settings.device_plugin.method in BY_CHART else _own_pods)(settings, node, view)
    of_mps = () if mps is None or gpus is None else judge_mps(settings, mps, gpus)
    managed = judge_mig_manager(settings, node.labels)
    registered = decide_registered(settings, node, daemon_sets_of(settings, view), view, mig, gpus)
    return (
        _ready(node),
        *labels,
        *by_hand,
        *managed,
        *marked(with_restart(decide_outdated(settings, node, view), restart)).findings,
        *marked(decide_current(settings, name, daemon_sets_of(settings, view), view, boot or MigBoot())).findings,
        *_behind(release, _behind(restart, of_pods, (POD,)), _RELEASED),
        *_behind(restart, (*registered.findings, *of_mps), _CONFIGURED),
        *_behind(release, _behind(restart, judge_feature_labels(settings, node, gpus, mig), _CONFIGURED), _RELEASED),
    )


def _behind(
    restart: Decision[str], findings: Iterable[Finding], about: Sequence[FindingMessage]
) -> tuple[Finding, ...]:
    """Return findings; those about what the change brings are pending where it waits."""
    reason, codes = waits(restart), [each.code for each in about]
    if reason is None:
        return tuple(findings)

    def follows(item: Finding) -> bool:
        # Whether a daemon answers is nothing that it brings, nor whether a pod that is there is well.
        is_pod = item.code == POD.code
        return item.code in codes and item.desired != ANSWERS and (not is_pod or item.actual == "none")

    return tuple(behind_restart(item, reason) if follows(item) else item for item in findings)


def resources_of(settings: Settings, node: ClusterNode | None) -> Decision[ResourceChange]:
    """Return what is to be done about the extended resources of a node that are counted by hand."""
    return decide_resources("" if node is None else node.name, settings.kubernetes.extended_resources, node)


def _offered(node: ClusterNode, desired: Mapping[str, int], remedy: str) -> Iterator[Finding]:
    """Yield whether a node offers these resources; remedy: what to do where it does not."""
    for name, count in desired.items():
        actual = node.allocatable.get(name)
        yield ALLOCATABLE.compared(actual, count, actual == str(count), of=name, remedy=remedy)


def _of_exporter(settings: Settings, node: ClusterNode, view: View) -> Iterator[Finding]:
    """Yield whether the pod of DCGM's exporter is on the node, where it is to be."""
    desired = settings.dcgm_exporter_chart
    if desired.enabled and view.exporter is not None:
        sets = view.exporter.plugin_sets(desired.release)
        if not sets:
            yield RELEASE.compared(None, _THERE, False, of=f"{desired.namespace}/{desired.release}")
        yield from (_pod(each, desired.namespace, node, view.exporter) for each in sets)


def judge_extender(view: View) -> Finding:
    """Return whether gpushare's scheduler extender is there and runs: no pod that asks for GPU memory goes without."""
    of = f"{NAMESPACE}/{EXTENDER}"
    found = next((each for each in view.deployments if (each.name, each.method) == (EXTENDER, "gpushare")), None)
    if found is None:
        return DEPLOYMENT.compared(None, _THERE, False, of=of)
    actual = "ready" if found.ready else "not ready"
    return DEPLOYMENT.compared(actual, "ready", found.ready, of=of, remedy=_DESCRIBE_EXTENDER)


def _ready(node: ClusterNode) -> Finding:
    found = "Ready" if node.ready else "not Ready"
    remedy = DESCRIBE_NODE.format(node=node.name)
    return NODE.compared(found, "Ready", node.ready, remedy=remedy)


def _pods(settings: Settings, node: ClusterNode, view: View) -> Iterator[Finding]:
    plugin = settings.device_plugin
    sets = view.plugin_sets(plugin.release)
    if not any(not each.endswith((MPS_DAEMON, FEATURE_DISCOVERY)) for each in sets):
        yield RELEASE.compared(None, _THERE, False, of=f"{plugin.namespace}/{plugin.release}")
    for each in sets:
        if not each.endswith(MPS_DAEMON) or settings.sharing.strategy == "mps":
            yield _pod(each, plugin.namespace, node, view)
            yield from _image(each, settings, node, view)


def _own_pods(settings: Settings, node: ClusterNode, view: View) -> Iterator[Finding]:
    namespace, name = own_daemon_set(settings)
    if any((each.name, each.method) == (name, settings.device_plugin.method) for each in view.daemon_sets):
        yield _pod(name, namespace, node, view)
        if settings.device_plugin.method == "manifest":
            yield from _image(name, settings, node, view)
    else:
        yield DAEMON_SET.compared(None, _THERE, False, of=f"{namespace}/{name}")


def daemon_sets_of(settings: Settings, view: View) -> tuple[str, ...]:
    """Return the names of the DaemonSets that a node of these settings has its plugin's pods of."""
    if settings.device_plugin.method in BY_CHART:
        return view.plugin_sets(settings.device_plugin.release)
    return (own_daemon_set(settings)[1],)


def own_daemon_set(settings: Settings) -> tuple[str, str]:
    """Return namespace and name of the DaemonSet of gpunode's own that a node of these settings has its pod of."""
    if settings.device_plugin.method == "gpushare":
        return NAMESPACE, PLUGIN
    return settings.device_plugin.namespace, daemon_set_name(configuration(settings.sharing).name)


def _pod(name: str, namespace: str, node: ClusterNode, view: View) -> Finding:
    pod = view.pod(name, node.name)
    found = None if pod is None else "ready" if pod.ready else pod.phase
    remedy = _DESCRIBE.format(namespace=namespace)
    cause = None if pod is None else pod.waits
    return POD.compared(found, "ready", found == "ready", of=name, cause=cause, remedy=remedy)


def _image(name: str, settings: Settings, node: ClusterNode, view: View) -> Iterator[Finding]:
    """Yield whether a pod runs the image of the digest that is asked for; of a pod that is not there, nothing."""
    digest, pod = settings.device_plugin.image_digest, view.pod(name, node.name)
    if digest is None or pod is None:
        return
    others = pod.other_images(digest)
    found = ", ".join(others) or digest
    yield IMAGE.compared(found, digest, not others, of=name)


def resources_to_ask_for(settings: Settings, mig: Mig, gpus: Gpus | None, node: ClusterNode | None) -> dict[str, int]:
    """Return resource -> how many of it the node is to offer, of those by which a pod gets a GPU or a part of one."""
    if settings.device_plugin.config_name is not None:
        offers = gpus_of(node.allocatable) if node is not None else {}
        return {name: int(count) for name, count in offers.items() if count.isdecimal()}
    promised = promise(settings, mig, gpus)[0]
    desired = {} if promised is None else promised.resources
    if settings.device_plugin.method == "gpushare":
        return {GPU_MEMORY: desired[GPU_MEMORY]} if GPU_MEMORY in desired else {}
    return dict(desired)


def resource_to_ask_for(
    settings: Settings, mig: Mig, gpus: Gpus | None, node: ClusterNode | None, pods: int = 1
) -> str | None:
    """Return the resource by which each of so many pods gets one, if any has enough; None where the node has none."""
    found = resources_to_ask_for(settings, mig, gpus, node)
    enough = [name for name, count in found.items() if count >= pods]
    return min(enough or found, default=None)


def comes_by_itself(finding: Finding) -> bool:
    """Say whether it is worth waiting for: readiness and resources come, labels and what is a person's do not."""
    stays = (LABEL.code, ANNOTATION.code, EXTENDED_RESOURCE.code, OUTDATED_PODS.code)
    if finding.remedy == DIVIDE_OTHERWISE:
        return False
    return not (finding.by_person or finding.code in stays) and finding.desired not in (None, _THERE)
