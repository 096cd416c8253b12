"""The device plugins of a cluster, by whichever owner: their method, the nodes that they take, and the pods that leave.

Two of them on one node fight for its GPUs: each hands out what the other has given away. So do gpunode and a GPU
Operator that brings driver, container toolkit or MIG layouts itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision
from gpunode.kubernetes.nodes.cluster_nodes import told
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.labels import PRESENT, SELECTING, owned
from gpunode.kubernetes.objects.own_objects import METHOD
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART

# Programs of the same image that are no device plugin.
_BESIDE = ("gpu-feature-discovery", "mps-control-daemon", "config-manager")
PLUGIN = "device plugin"
# The custom resources of which an operator makes its DaemonSets.
_KINDS = {"ClusterPolicy", "NVIDIADriver"}
# How the DaemonSets of an operator begin by which it does gpunode's work -> what that is, and the value that ends it.
_OF_OPERATOR = {
    "nvidia-driver-daemonset": ("driver", "driver.enabled"),
    # nvidia-gpu-driver-OS-HASH, one for each NVIDIADriver and system (driver.nvidiaDriverCRD.enabled).
    "nvidia-gpu-driver-": ("driver", "driver.enabled"),
    "nvidia-container-toolkit-daemonset": ("container toolkit", "toolkit.enabled"),
    "nvidia-mig-manager": ("MIG manager", "migManager.enabled"),
}

SECOND_PLUGIN = cluster_finding(
    "second device plugin",
    "A second device plugin runs on this node.",
    "Two plugins of one resource overwrite each other: the number of GPUs jumps, and pods get used devices.",
    remedies=(BY_HAND,),
)

_VALUES = f"device_plugin.values = {{{{'nodeSelector': {{{{'{PRESENT}': 'true'}}}}}}}}"
STAYS = (
    "pods of DaemonSet {sets} hold GPUs of node {node}, and labels that are not gpunode's, such as those of node "
    f"feature discovery, keep them there. Remedy: have the DaemonSet select the node by {PRESENT} as well, which "
    f"gpunode takes off for the change (its own release: {_VALUES}), and run again"
)
NOT_DRAINED = (
    "pods {pods} hold GPUs of node {node}, and kubernetes.drain is off, so that nothing takes them off it. Remedy: end "
    "these pods, or set kubernetes.drain = {{'enabled': True}}, and run again"
)


@dataclass(frozen=True)
class Plugin:
    """Hold a device plugin's DaemonSet: its method, its name, the release it is of, whose it is, and where it goes.

    `program` is another one where it is a GPU Operator's, and does work of gpunode's; `value` is what ends it there;
    `driver` is the NVIDIADriver that it was made of.
    """

    method: str
    namespace: str
    name: str
    release: str | None
    ours: bool
    pod: Mapping[str, Any]
    program: str = PLUGIN
    value: str = "devicePlugin.enabled"
    driver: str | None = None

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Say whether it goes to a node with these labels."""
        return selected(self.pod, labels)

    @property
    def removal(self) -> str:
        """Return the command that takes it away."""
        if self.release is not None:
            return f"helm -n {self.namespace} uninstall {self.release}"
        if self.method == "gpu-operator":
            also = f", and `kubectl delete nvidiadriver {self.driver}` where that stays" if self.driver else ""
            return f"set {self.value} to false in its values{also}"
        return f"kubectl -n {self.namespace} delete daemonset {self.name}"


def parse_plugins(text: str) -> tuple[Plugin, ...]:
    """Parse a list of DaemonSets: the device plugins for NVIDIA's GPUs; raise ParseError."""
    return told(text, "list of DaemonSets", lambda found: tuple(filter(None, map(_plugin, found["items"]))))


def _plugin(item: Mapping[str, Any]) -> Plugin | None:
    metadata, pod = item["metadata"], item["spec"]["template"]["spec"]
    labels = metadata.get("labels") or {}
    programs = {kind for each in pod.get("containers") or [] if (kind := _program(each))}
    name, namespace = str(metadata["name"]), str(metadata["namespace"])
    owners = {each.get("kind"): each.get("name") for each in metadata.get("ownerReferences") or []}
    of_operator = bool(_KINDS & owners.keys())
    operand = next((said for begins, said in _OF_OPERATOR.items() if name.startswith(begins)), None)
    if of_operator and operand is not None:
        return Plugin("gpu-operator", namespace, name, None, False, pod, *operand, owners.get("NVIDIADriver"))
    if not programs:
        return None
    # By helm itself, whatever the chart's own labels are.
    release = (metadata.get("annotations") or {}).get("meta.helm.sh/release-name")
    method = "gpushare" if "gpushare" in programs else "manifest" if release is None else "helm"
    if of_operator:
        method, release = "gpu-operator", None
    return Plugin(method, namespace, name, release, METHOD in labels, pod)


def _program(container: Mapping[str, Any]) -> str | None:
    image = str(container.get("image") or "").partition("@")[0]
    words = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    first = words[0].rpartition("/")[2] if words else ""
    name = image.rpartition("/")[2].partition(":")[0]
    if "gpushare" in name or first.startswith("gpushare-device-plugin"):
        return "gpushare"
    if first == "nvidia-device-plugin" or (name == "k8s-device-plugin" and first not in _BESIDE):
        return "nvidia"
    return None


def selected(pod: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Say whether a node with these labels is one that the pods may go to, as the scheduler sees it."""
    if any(labels.get(name) != value for name, value in (pod.get("nodeSelector") or {}).items()):
        return False
    affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = required.get("nodeSelectorTerms") or []
    # A term of nothing but fields names nodes: it may be any.
    return not terms or any(
        all(_matches(each, labels) for each in term.get("matchExpressions") or [])
        for term in terms
        if term.get("matchExpressions") or term.get("matchFields")
    )


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    actual, desired = labels.get(expression["key"]), expression.get("values") or []
    match expression.get("operator"):
        case "In":
            return actual in desired
        case "NotIn":
            return actual not in desired
        case "Exists":
            return actual is not None
        case "DoesNotExist":
            return actual is None
        case "Gt" | "Lt" as operator:
            if actual is None or not actual.isdecimal() or not desired or not str(desired[0]).isdecimal():
                return False
            return int(actual) > int(desired[0]) if operator == "Gt" else int(actual) < int(desired[0])
    # One that is not known yet may match.
    return True


def decide(
    settings: Settings, labels: Mapping[str, str], plugins: Sequence[Plugin], leaving: frozenset[str] = frozenset()
) -> Decision[None]:
    """Return which plugins take a node beside the one that it is to have; they are people's to take away.

    + labels: that the node is going to have
    + leaving: methods whose release or objects of gpunode's this run takes away
    """
    plugin = settings.device_plugin
    if not settings.kubernetes.enabled or plugin.method == "none":
        return Decision(())
    methods = {plugin.method, "helm"} if plugin.method in BY_CHART else {plugin.method}
    found = [
        SECOND_PLUGIN.compared(f"{each.namespace}/{each.name}", "none", False, cause=reason)
        for each in plugins
        if not (_is_own(each, settings) and each.method in methods | leaving) and each.takes(labels)
        if (reason := _reason(each, settings)) is not None
    ]
    if not found:
        return Decision((SECOND_PLUGIN.compared("none", "none", True),))
    return Decision(tuple(found), (), "\n".join(str(item.cause) for item in found))


def _reason(plugin: Plugin, settings: Settings) -> str | None:
    """Return why a plugin that takes a node may not; None where what it brings is not gpunode's there."""
    if plugin.program == PLUGIN:
        return (
            f"DaemonSet {plugin.namespace}/{plugin.name} takes this node, a device plugin by method {plugin.method!r}, "
            f"and device_plugin.method is {settings.device_plugin.method!r}: two plugins would give the same GPUs "
            f"away. Take it away ({plugin.removal}), keep it off the node, or set device_plugin.method to 'none'"
        )
    if not _is_gpunode_s(plugin.program, settings):
        return None
    return (
        f"DaemonSet {plugin.namespace}/{plugin.name} of a GPU Operator takes this node, and brings a {plugin.program}, "
        f"which is gpunode's here: {plugin.removal}, or leave that out of the node's settings"
    )


def _is_own(plugin: Plugin, settings: Settings) -> bool:
    """Say whether a plugin is one that gpunode brought, or whose release it keeps: that ends what is not asked for."""
    desired = settings.device_plugin
    if plugin.method == "gpu-operator":
        return plugin.namespace == settings.gpu_operator.namespace
    return plugin.ours or (
        plugin.method == "helm" and (plugin.release, plugin.namespace) == (desired.release, desired.namespace)
    )


def _is_gpunode_s(program: str, settings: Settings) -> bool:
    if program == "driver":
        return settings.driver.installs
    if program == "container toolkit":
        return settings.toolkit.enabled
    return settings.mig.config is not None or settings.mig.config_from_label


def taking(labels: Mapping[str, str], annotation: str | None) -> dict[str, str]:
    """Return the labels of gpunode's by which DaemonSets take a node, those that are off it for now included."""
    ours = owned(annotation)
    return {name: value for name, value in SELECTING.items() if name in ours and labels.get(name, value) == value}


def leaving(text: str, before: Mapping[str, str], after: Mapping[str, str] | None) -> frozenset[str]:
    """Return the DaemonSets (NAMESPACE/NAME) that take a node with its labels `before`, and with those `after` no more.

    + text: a list of DaemonSets; after: None: whatever they do then
    """
    return told(text, "list of DaemonSets", lambda found: frozenset(_leaving(found["items"], before, after)))


def _leaving(items: Any, before: Mapping[str, str], after: Mapping[str, str] | None) -> Iterator[str]:
    for item in items:
        pod = item["spec"]["template"]["spec"]
        if selected(pod, before) and (after is None or not selected(pod, after)):
            yield f"{item['metadata']['namespace']}/{item['metadata']['name']}"


def left(text: str, sets: Collection[str] | None, containers: Collection[str] = ("",)) -> tuple[str, ...]:
    """Return the pods of these DaemonSets, None: all pods, as NAMESPACE/NAME; `text` lists pods of a node.

    + containers: how the ID of one of a pod's containers begins
    """
    return told(text, "list of pods", lambda found: tuple(_left(found["items"], sets, tuple(containers))))


def _left(items: Any, sets: Collection[str] | None, containers: tuple[str, ...]) -> Iterator[str]:
    for item in items:
        metadata, states = item["metadata"], (item.get("status") or {}).get("containerStatuses") or [{}]
        ids = (str(each.get("containerID")).rpartition("/")[2] for each in states)
        owners = (each for each in metadata.get("ownerReferences") or [] if each["kind"] == "DaemonSet")
        is_one = sets is None or any(f"{metadata['namespace']}/{each['name']}" in sets for each in owners)
        if is_one and any(each.startswith(containers) for each in ids):
            yield f"{metadata['namespace']}/{metadata['name']}"
