"""NVIDIA's chart dcgm-exporter: its release, and what cannot be had together with it in a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision
from gpunode.base.messages import Scope
from gpunode.components.dcgm.state import HOST_ENGINE
from gpunode.kubernetes.device_plugin.others import selected
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, told
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.labels import EXPORTER_LABEL
from gpunode.kubernetes.objects.runtime_class import NAME
from gpunode.settings import Settings
from gpunode.settings.chart import merged
from gpunode.settings.cluster import needs_runtime_class

# Images of NVIDIA's, by the last part of their names: an exporter, and a host engine for all of a node's pods.
_PROGRAMS = {"dcgm-exporter": "exporter", "dcgm": "host engine"}
GROUP, _KIND = "monitoring.coreos.com", "servicemonitors"
# Where the user gives none: the chart's own toleration, and that of the taint by which GPU nodes are kept for their
# jobs. All pods are updated at once, since a gap in metrics hurts nobody, and one node after the other takes longer
# than helm waits (gpunode/data/dcgm.yaml).
_DEFAULTS: Mapping[str, Any] = {
    "tolerations": [
        {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ],
    "rollingUpdate": {"maxUnavailable": "100%", "maxSurge": 0},
}

SECOND_EXPORTER = cluster_finding(
    "second exporter",
    "A second DCGM exporter runs on this node.",
    "Each queries the GPUs, and only one of them gets profiling metrics.",
    remedies=(BY_HAND,),
)
SERVICE_MONITOR = cluster_finding(
    "kind ServiceMonitor",
    "The cluster knows no kind ServiceMonitor, which the exporter's chart is to make.",
    "The kind comes with the Prometheus Operator. helm would install nothing of the chart.",
    remedies=(BY_HAND,),
    scope=Scope.CLUSTER,
    cause=f"the cluster knows no kind ServiceMonitor ({_KIND}.{GROUP}), and dcgm_exporter_chart.service_monitor = "
    "True asks for one: helm would install nothing. Install the Prometheus Operator with its custom resources, or set "
    "dcgm_exporter_chart.service_monitor = False",
)


def nodes_with_exporter(hosts: Mapping[str, Settings]) -> dict[str, Settings]:
    """Return the hosts that are to have the exporter's pod."""
    return {host: each for host, each in hosts.items() if each.kubernetes.enabled and each.dcgm_exporter_chart.enabled}


def exporter_namespace(hosts: Mapping[str, Settings]) -> str | None:
    """Return the namespace of the exporter's pods; None where none of these hosts is to have one."""
    return next((each.dcgm_exporter_chart.namespace for each in nodes_with_exporter(hosts).values()), None)


def asks_for_monitor(hosts: Mapping[str, Settings]) -> bool:
    """Say whether the exporter of these hosts is to come with a ServiceMonitor."""
    return any(each.dcgm_exporter_chart.service_monitor for each in nodes_with_exporter(hosts).values())


def exporter(hosts: Mapping[str, Settings]) -> AskedRelease | None:
    """Return the release that the cluster of these hosts is to get; None where none of them asks for it."""
    nodes = nodes_with_exporter(hosts)
    first = next(iter(nodes.values()), None)
    if first is None:
        return None
    desired = first.dcgm_exporter_chart
    variables = {"DCGM_EXPORTER_INTERVAL": str(desired.interval * 1000)}
    if desired.engine == "host":
        variables["DCGM_REMOTE_HOSTENGINE_INFO"] = HOST_ENGINE
    ours: dict[str, Any] = {
        "extraEnv": [
            *desired.values.get("extraEnv", []),
            *({"name": name, "value": value} for name, value in variables.items()),
        ],
        "hostNetwork": desired.engine == "host",
        "nodeSelector": {EXPORTER_LABEL: "true"},
        "service": {"port": desired.port, "address": f":{desired.port}"},
        "serviceMonitor": {"enabled": desired.service_monitor},
    }
    if any(map(needs_runtime_class, nodes.values())):
        ours["runtimeClassName"] = NAME
    return AskedRelease(first.kubernetes, desired, {**_DEFAULTS, **merged(desired.values, ours)})


@dataclass(frozen=True)
class Exporter:
    """Hold a DaemonSet of DCGM's: what it runs, its name, the release that it is of, and where its pods go.

    `of_operator`: a GPU Operator made it.
    """

    program: str
    namespace: str
    name: str
    release: str | None
    of_operator: bool
    pod: Mapping[str, Any]

    @property
    def removal(self) -> str:
        """Return what takes it away."""
        if self.of_operator:
            value = "dcgmExporter" if self.program == "exporter" else "dcgm"
            return f"set {value}.enabled to false in the operator's values (gpu_operator.dcgm_exporter = False)"
        if self.release is not None:
            return f"helm -n {self.namespace} uninstall {self.release}"
        return f"kubectl -n {self.namespace} delete daemonset {self.name}"


def parse_exporters(text: str) -> tuple[Exporter, ...]:
    """Parse a list of DaemonSets: DCGM's DaemonSets, whoever put them there; raise ParseError."""
    return told(text, "list of DaemonSets", lambda found: tuple(filter(None, map(_exporter, found["items"]))))


def _exporter(item: Mapping[str, Any]) -> Exporter | None:
    metadata, pod = item["metadata"], item["spec"]["template"]["spec"]
    program = next((kind for each in pod.get("containers") or [] if (kind := _program(each))), None)
    if program is None:
        return None
    return Exporter(
        program=program,
        namespace=str(metadata["namespace"]),
        name=str(metadata["name"]),
        release=(metadata.get("annotations") or {}).get("meta.helm.sh/release-name"),
        of_operator=any(each.get("kind") == "ClusterPolicy" for each in metadata.get("ownerReferences") or []),
        pod=pod,
    )


def _program(container: Mapping[str, Any]) -> str | None:
    image = str(container.get("image") or "").partition("@")[0].rpartition("/")[2].partition(":")[0]
    words = [str(word) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    first = words[0].rpartition("/")[2] if words else ""
    return {"dcgm-exporter": "exporter", "nv-hostengine": "host engine"}.get(first) or _PROGRAMS.get(image)


def decide_alone(
    settings: Settings, node: ClusterNode, labels: Mapping[str, str], exporters: Sequence[Exporter]
) -> Decision[None]:
    """Return which other DaemonSets of DCGM's take a node that is to have the exporter; people take them away.

    + labels: that the node is going to have
    """
    if not (settings.kubernetes.enabled and settings.dcgm_exporter_chart.enabled):
        return Decision(())
    found = [
        SECOND_EXPORTER.compared(f"{each.namespace}/{each.name}", "none", False, cause=reason)
        for each in exporters
        if not _is_own(each, settings) and selected(each.pod, labels)
        if (reason := _reason(each, node.name))
    ]
    if not found:
        return Decision((SECOND_EXPORTER.compared("none", "none", True),))
    return Decision(tuple(found), (), "\n".join(str(item.cause) for item in found))


def _reason(exporter: Exporter, node: str) -> str:
    return (
        f"DaemonSet {exporter.namespace}/{exporter.name} takes {node}, a DCGM {exporter.program}, and "
        "dcgm_exporter_chart.enabled = True brings the exporter there: each would ask the GPUs, and one alone gets "
        f"their profiling metrics. Take it away ({exporter.removal}), keep it off the node, or set "
        "dcgm_exporter_chart.enabled = False"
    )


def _is_own(exporter: Exporter, settings: Settings) -> bool:
    """Say whether it is of a release that gpunode keeps: that ends what is not asked for."""
    desired = settings.dcgm_exporter_chart
    if exporter.of_operator:
        return settings.device_plugin.method == "gpu-operator" and exporter.namespace == settings.gpu_operator.namespace
    return (exporter.release, exporter.namespace) == (desired.release, desired.namespace)


def is_of_others(words: str) -> bool:
    """Say whether kubectl failed for groups of others alone, such as metrics-server's where that is down.

    It prints what it knows, and fails all the same, for any group of the cluster that does not answer.
    source: kubernetes/client-go, discovery/discovery_client.go (ErrGroupDiscoveryFailed)
    """
    return "unable to retrieve the complete list of server APIs" in words and GROUP not in words


def decide_monitor(hosts: Mapping[str, Settings], printed: str) -> Decision[None]:
    """Return whether the cluster can have the ServiceMonitor that is asked for; nothing where none is.

    + printed: the kinds of the Prometheus Operator that the cluster knows, as `kubectl api-resources` prints them
    """
    if not asks_for_monitor(hosts):
        return Decision(())
    good = f"{_KIND}.{GROUP}" in printed.split()
    item = SERVICE_MONITOR.compared("known" if good else None, "known", good)
    return Decision((item,), (), None if good else SERVICE_MONITOR.cause)
