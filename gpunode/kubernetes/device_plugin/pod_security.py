"""Pod Security of the namespaces whose pods mount folders of the node: what is to be done about their label."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpunode.base.comparison import by_hand
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.messages import Scope
from gpunode.kubernetes.device_plugin.desired_cluster import hosts_by
from gpunode.kubernetes.nodes.cluster_nodes import told
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.other_plugins.desired import releases
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART
from gpunode.settings.device_plugin import METHOD

# The plugin, its discovery and the operator's pods mount the node's folders, which `baseline` forbids.
LABEL, NEEDED = "pod-security.kubernetes.io/enforce", "privileged"
# Its pods are the cluster's own; who enforces Pod Security there has seen to it.
_OF_THE_CLUSTER = "kube-system"
_MISSING, _NO_LABEL = "{namespace}: there is none", f"{{namespace}}: no label {LABEL}"
NAMESPACE = cluster_finding(
    "namespace",
    "A namespace that pods with GPU devices need is missing or forbids them.",
    "Pod security of the namespace has to allow these pods; without its label the API server refuses them.",
    causes=(_MISSING, _NO_LABEL),
    scope=Scope.CLUSTER,
)
# Words for kubectl, and its standard input.
Told = tuple[tuple[str, ...], str | None]


def namespaces(hosts: Mapping[str, Settings]) -> dict[str, str]:
    """Return the namespaces that gpunode brings such pods into, and by which setting each is chosen."""
    found: dict[str, str] = {}
    for settings in hosts_by((*BY_CHART, "manifest"), hosts).values():
        found[settings.device_plugin.namespace] = "device_plugin.namespace"
        if settings.device_plugin.method == METHOD:
            found[settings.gpu_operator.namespace] = "gpu_operator.namespace"
    for settings in hosts.values():
        if settings.kubernetes.enabled and settings.rdma_shared_device_plugin.enabled:
            found.setdefault(settings.rdma_shared_device_plugin.namespace, "rdma_shared_device_plugin.namespace")
    for release in releases(hosts).values():
        found.setdefault(release.settings.namespace, f"{release.settings.component}.namespace")
    return {name: setting for name, setting in found.items() if name != _OF_THE_CLUSTER}


def parse_labels(text: str) -> Mapping[str, str] | None:
    """Parse a Namespace: the namespace's labels, None where there is no such namespace; raise ParseError."""
    return told(text, "Namespace", lambda found: dict(found["metadata"].get("labels") or {})) if text.strip() else None


def decide(desired: Mapping[str, str], actual: Mapping[str, Mapping[str, str] | None]) -> Decision[Told]:
    """Return what has namespaces admit pods that mount folders of the node; somebody's other will is refused.

    desired: namespace -> the setting that chooses it; actual: namespace -> its labels, None where there is none
    """
    found = [_of_one(name, setting, actual[name]) for name, setting in desired.items()]
    refusal = "\n".join(each.refusal for each in found if each.refusal is not None)
    # Where one is refused, a run changes none.
    steps = () if refusal else tuple(step for each in found for step in each.steps)
    return Decision(tuple(item for each in found for item in each.findings), steps, refusal or None)


def _of_one(name: str, setting: str, labels: Mapping[str, str] | None) -> Decision[Told]:
    what = NAMESPACE.about(name)
    value = None if labels is None else labels.get(LABEL)
    cause = (_MISSING if labels is None else _NO_LABEL).format(namespace=what)
    good = value == NEEDED
    item = NAMESPACE.compared(None if labels is None else value or "no label", NEEDED, good, of=name, cause=cause)
    if good:
        return Decision((item,))
    if value is not None:
        refusal = (
            f"{what} enforces {value[:40]!r} of Pod Security ({LABEL}), and pods that mount folders of the node need "
            f"{NEEDED!r}. Remedy: set that label, or set {setting} to another namespace"
        )
        return Decision((by_hand(item, refusal),), (), refusal)
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LABEL: NEEDED}}}
    made: Told = (("create", "--filename", "-"), json.dumps(document))
    label: Told = (("label", "namespace", name, f"{LABEL}={NEEDED}"), None)
    action, change = (f"create {what}", made) if labels is None else (f"label {what}", label)
    return Decision((item,), (Step(action, (item,), Disruption.nothing, change=change),))
