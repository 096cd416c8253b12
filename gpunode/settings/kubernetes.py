"""Settings of the Kubernetes cluster that a node belongs to, of its kubelet, and of how it is drained there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from gpunode.settings.component import LABEL, AbsolutePath, Component, matching
from gpunode.settings.other_plugins import OtherPlugin, PluginName, ResourceCount, by_hand, of_others

_WORD = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
LABEL_VALUE = re.compile(_WORD, re.ASCII)
_NAME = re.compile(rf"((?=[^/]{{1,253}}/){LABEL}(\.{LABEL})*/)?{_WORD}", re.ASCII)
# How names begin that are no person's to set, or what they are as a whole, and whose they are: the other one would set
# them back, and gpunode again, for ever.
_OF_OTHERS: Mapping[str, str] = {
    "gpunode/": "belongs to gpunode",
    "gpushare": "belongs to gpunode (device_plugin.method)",
    "nvidia.com/": "belongs to NVIDIA's device plugin, feature discovery and operator",
    "feature.node.kubernetes.io/": "belongs to node feature discovery",
    "kubernetes.io/hostname": "belongs to the kubelet",
    "kubernetes.io/os": "belongs to the kubelet",
    "kubernetes.io/arch": "belongs to the kubelet",
    "beta.kubernetes.io/os": "belongs to the kubelet",
    "beta.kubernetes.io/arch": "belongs to the kubelet",
}
_AMOUNT = r"\d{1,18}(\.\d{1,9})?(m|[kMGTPE]|[KMGTPE]i)?"
_Amount = Annotated[str, matching(_AMOUNT, "an amount such as '500m' (CPUs), '1Gi' or '2000' (processes)")]
_Threshold = Annotated[
    str, matching(rf"{_AMOUNT}|(\d|[1-9]\d)(\.\d{{1,3}})?%", "an amount such as '500Mi', or a share such as '10%'")
]
_Reserved = Annotated[
    str, matching("cpu|memory|ephemeral-storage|pid", "one of cpu, memory, ephemeral-storage and pid")
]
_Signal = Annotated[
    str,
    matching(
        r"memory\.available|pid\.available|(nodefs|imagefs)\.(available|inodesFree)",
        "a signal: memory.available, pid.available, or available and inodesFree of nodefs and imagefs",
    ),
]
_Reservations = dict[_Reserved, _Amount]


def node_label(text: str) -> str:
    """Return a label's name as it is; raise ValueError where a node cannot have it, or others set it."""
    if _NAME.fullmatch(text) is None:
        raise ValueError(
            "must be NAME or DOMAIN/NAME such as 'example.com/rack': the domain in lower case, the name of letters, "
            "digits, '-', '_' and '.' inside, 63 at most"
        )
    for name, whose in _OF_OTHERS.items():
        if text == name or (name.endswith("/") and text.startswith(name)):
            raise ValueError(f"{whose}, which would set it back; leave it out")
    return text


def label_value(text: str) -> str:
    """Return a label's value as it is, which may be empty as a role's is; raise ValueError where it can be none."""
    if text and LABEL_VALUE.fullmatch(text) is None:
        raise ValueError("must be a label's value: letters, digits, '-', '_' and '.' inside, 63 at most, or empty")
    return text


NodeLabel = Annotated[str, AfterValidator(node_label)]
LabelValue = Annotated[str, AfterValidator(label_value)]


LOCAL = "@local"
NodeName = Annotated[str, matching(rf"(?=.{{1,253}}$){LABEL}(\.{LABEL})*", "a node's name such as 'gpu-1.example.org'")]
# Of a program or file on the machine where helm runs; a tilde would reach it unexpanded.
ProgramPath = Annotated[str, matching(r"/?[A-Za-z0-9._+-]+(/[A-Za-z0-9._+-]+)*", "a program's name, or its path")]
_Runner = Annotated[str, matching(r"@local|[A-Za-z0-9][A-Za-z0-9._-]*", "'@local', or a host's name in the inventory")]
_Version = Annotated[str, matching(r"\d{1,2}\.\d{1,3}(\.\d{1,3})?", "a version such as '1.31' or '1.31.4'")]
_Resource = Annotated[str, AfterValidator(by_hand)]
_OfOthers = Annotated[str, AfterValidator(of_others)]
_Context = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,252}", "a context's name such as 'admin@cluster'")]


class KubeletSettings(Component):
    """The kubelet that runs on the node (docs/how-to/kubelet.md): what it keeps from pods, and how it places them. What
    is not given stays as it is, and what gpunode set goes when its setting goes. The kubelet is restarted where it is
    to run by something else; a node is drained first where pods would feel that."""

    system_reserved: _Reservations = Field(default_factory=dict, max_length=4)
    """What is kept for the operating system, such as `{'cpu': '500m', 'memory': '1Gi'}`: pods are not promised it."""
    kube_reserved: _Reservations = Field(default_factory=dict, max_length=4)
    """What is kept for the kubelet and the container runtime."""
    eviction_hard: dict[_Signal, _Threshold] = Field(default_factory=dict, max_length=6)
    """Below which of these pods are evicted, such as `{'memory.available': '500Mi'}`. Where nobody else says one, the
    kubelet's own defaults stay for the others."""
    max_pods: int | None = Field(None, ge=1, le=5000)
    """How many pods the node takes; the kubelet's own number is 110."""
    cpu_manager_policy: Literal["none", "static"] | None = None
    """`static`: pods of the class Guaranteed with whole CPUs have these alone; takes a reserved `cpu`. gpunode removes
    the kubelet's cpu_manager_state with a change, for the kubelet would not start by the former policy's."""
    topology_manager_policy: Literal["none", "best-effort", "restricted", "single-numa-node"] | None = None
    """How near each other a pod's CPUs and GPUs have to be."""

    @property
    def asks(self) -> bool:
        """Say whether anything is asked of the kubelet."""
        return any(value not in (None, {}) for _, value in self)


class DrainSettings(Component):
    """How a node of a cluster is emptied before a step that its pods would feel (docs/how-to/drain.md)."""

    enabled: bool = True
    """false: the cluster is not told, and pods feel what `disruption.allow` lets happen."""
    timeout: int = Field(600, ge=5, le=86400)
    """Seconds within which the node must be empty; then it is *drain blocked*, and left as it is."""
    grace: int | None = Field(None, ge=0, le=86400)
    """Seconds that each pod has to end in; not given: what the pod itself says."""
    delete_emptydir_data: bool = False
    """true: pods with emptyDir volumes are evicted, too, and what is in these is lost."""
    force: bool = False
    """true: pods that no controller makes anew elsewhere are evicted, too, and are gone for good."""
    ready_timeout: int = Field(300, ge=5, le=7200)
    """Seconds within which the node must be Ready in the cluster before it takes pods again."""
    foreign_cordon: Literal["drain", "skip"] = "drain"
    """What becomes of a node that somebody else has cordoned: `drain`: it is drained and changed as any other, and
    keeps that cordon; `skip`: a run leaves the machine alone, and drift, plan and rollout say so."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse a grace that no drain could await, and pods given up where none is asked to leave."""
        if self.grace is not None and self.grace >= self.timeout:
            yield "grace", f"is no shorter than timeout, {self.timeout} s: the drain would end before the pods"
        for name in ("force", "delete_emptydir_data"):
            if getattr(self, name) and not self.enabled:
                yield name, "has no meaning with enabled = False: no pod is evicted"
        if self.foreign_cordon == "skip" and not self.enabled:
            yield "foreign_cordon", "has no meaning with enabled = False: the cluster is not asked for cordons"


class KubernetesSettings(Component):
    """The Kubernetes cluster that a node belongs to. But for `enabled`, `node_name`, `node_labels`, `drain`,
    `kubelet`, `extended_resources`, `expected_resources` and which of `device_plugins` it has, all nodes of a run must
    have the same. What the cluster gets is shown by `gpunode cluster`, and brought there at the end of a run
    (docs/device-plugin.md); a node is emptied before it is disturbed (docs/how-to/drain.md)."""

    enabled: bool = False
    """true: the host is a node of a Kubernetes cluster."""
    node_name: NodeName | None = None
    """Its name in the cluster; not given: the host's name in the inventory, in lower case."""
    node_labels: dict[NodeLabel, LabelValue] = Field(default_factory=dict, max_length=50)
    """Labels of yours that the node has in the cluster, such as `{'example.com/rack': 'b7'}`, by which pods choose it.
    What gpunode set it changes and takes away again (docs/how-to/node-labels.md)."""
    run_on: _Runner = LOCAL
    """Where helm and kubectl run: `@local`, or a host of the inventory (a control-plane host, by SSH)."""
    kubeconfig: AbsolutePath | None = None
    """Path of the kubeconfig there; not given: what helm and kubectl find by themselves."""
    context: _Context | None = None
    """Context of the kubeconfig; not given: its current one."""
    version: _Version | None = None
    """The cluster's version, such as `1.31`: what it cannot have is then refused before it is contacted, and another
    one that is found later is an error. Not given: as found."""
    helm: ProgramPath = "helm"
    """The program helm (3.8 or newer, or 4), as a name or a path."""
    kubectl: ProgramPath = "kubectl"
    """The program kubectl, as a name or a path."""
    timeout: int = Field(300, ge=10, le=7200)
    """Seconds within which a release must be ready, or it is rolled back. helm 4 waits for custom resources too: with a
    GPU Operator until its ClusterPolicy is ready, which takes minutes on new nodes."""
    history: int = Field(10, ge=2, le=256)
    """How many revisions of a release the cluster keeps."""
    drain: DrainSettings = Field(default_factory=lambda: DrainSettings.model_validate({}))
    """How the node is emptied before it is disturbed."""
    kubelet: KubeletSettings = Field(default_factory=lambda: KubeletSettings.model_validate({}))
    """What the node's kubelet keeps from pods, and how it places them."""
    extended_resources: dict[_Resource, ResourceCount] = Field(default_factory=dict, max_length=50)
    """Resources that the node offers by a count of yours, such as `{'example.com/dongle': 4}`: pods are counted against
    it, and nobody gives them a device. What gpunode set it takes away again (docs/how-to/extended-resources.md)."""
    expected_resources: dict[_OfOthers, ResourceCount] = Field(default_factory=dict, max_length=50)
    """What device plugins of others are to offer on the node, such as `{'rdma/hca_shared_devices_a': 1000}`: the
    verdict waits for it in `allocatable`, and drift finds another count. For a plugin of `device_plugins` it is said
    there."""
    device_plugins: dict[PluginName, OtherPlugin] = Field(default_factory=dict, max_length=20)
    """Device plugins of others that gpunode rolls out to the node, by names of yours: a manifest file or a helm chart
    each, such as `{'fpga': {'manifest': 'fpga.yaml', 'resources': {'xilinx.com/fpga-u250': 1}}}`. One that no node of
    the inventory has any more is removed (docs/how-to/other-device-plugins.md)."""

    @property
    def drains(self) -> bool:
        """Say whether the node is emptied before it is disturbed."""
        return self.enabled and self.drain.enabled

    @property
    def cluster_name(self) -> str:
        """Return what the cluster is called: its context, or its kubeconfig."""
        return self.context or self.kubeconfig or "cluster"

    @property
    def expected(self) -> dict[str, int]:
        """Return resource -> how many of it device plugins of others are to offer on the node."""
        of_plugins = {name: count for each in self.device_plugins.values() for name, count in each.resources.items()}
        return {**self.expected_resources, **of_plugins}

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Refuse what drain and plugins refuse, kubelet or labels without a cluster, and a resource that two have."""
        yield from ((f"drain.{field}", message) for field, message in self.drain.contradictions())
        for key, asks in {"kubelet": self.kubelet.asks, "node_labels": self.node_labels}.items():
            if asks and not self.enabled:
                yield key, "has no meaning with enabled = False: the host is no node of a cluster"
        for name in sorted(self.extended_resources.keys() & self.expected_resources.keys()):
            yield "expected_resources", f"has {name}, which kubernetes.extended_resources counts by hand; leave one out"
        whose = {name: key for key in ("extended_resources", "expected_resources") for name in getattr(self, key)}
        objects: dict[tuple[str, str, str, str], str] = {}
        for name, plugin in self.device_plugins.items():
            key = f"device_plugins.{name}"
            yield from ((f"{key}.{field}", message) for field, message in plugin.wrong(name, objects))
            for resource in plugin.resources:
                if resource in whose:
                    message = f"has {resource}, which kubernetes.{whose[resource]} has, too; leave one out"
                    yield f"{key}.resources", message
                whose.setdefault(resource, f"{key}.resources")
