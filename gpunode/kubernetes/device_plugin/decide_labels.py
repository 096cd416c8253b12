"""A node's labels in the cluster: what is to be done about gpunode's, and where those of GPU feature discovery differ.

source: NVIDIA/k8s-device-plugin, internal/lm (nvml.go, resource.go, mig-strategy.go, strategy.go), v0.15.0 to v0.20.0
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpunode.base import tables, versions
from gpunode.base.comparison import AS_DESIRED, RESTART
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.reading import Unknown
from gpunode.components.mig.state import Mig
from gpunode.kubernetes.device_plugin.mig_resources import is_display, label_name
from gpunode.kubernetes.device_plugin.promise import offered
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import ANNOTATION, RUN_CLUSTER, cluster_finding
from gpunode.kubernetes.nodes.labels import (
    MIG_CONFIG,
    MIG_STATE,
    OURS,
    LabelChange,
    given_up,
    has_mig_state,
    label_change,
    wanted_labels,
)
from gpunode.settings import Settings
from gpunode.settings.sharing import WHOLE_GPU, SharingSettings
from gpunode.system.gpu import Gpu, Gpus

STRATEGY, CAPABLE, MPS_CAPABLE = "nvidia.com/mig.strategy", "nvidia.com/mig.capable", "nvidia.com/mps.capable"
DRIVER, RUNTIME = "nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.runtime-version.full"
# Of MIG devices that a node has no more, one may stay behind.
_OF_A_PROFILE = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb.*\.count")
# The most that Kubernetes takes as a label's value: node feature discovery leaves a longer one out.
_LONGEST = 63
# Label -> the values that it may have: of GPUs of several models, discovery tells one, by chance. None: no such label.
Expected = dict[str, tuple[str | None, ...]]

_LOOK = (
    "see the log of GPU feature discovery's pod on the node (`kubectl --namespace {namespace} get pods --output "
    "wide`), and whether node feature discovery's master and its worker on the node run"
)
_RENEW = (
    "delete GPU feature discovery's pod of the node in {namespace}: a new one looks again; where the label stays, "
    "find out who sets it (`kubectl get node {node} --show-managed-fields -o yaml`)"
)
FEATURE_LABELS = cluster_finding(
    "feature labels",
    "GPU feature discovery has written no labels for this node.",
    "Pods choose nodes by these labels and never come to a node without them.",
    cause="GPU feature discovery writes them by node feature discovery, and one of the two has not",
    remedies=(_LOOK,),
    classes=RESTART,
)
FEATURE_LABEL = cluster_finding(
    "feature label",
    "A label of GPU feature discovery differs from what the node has.",
    "Pods choose nodes by such labels, and would come to a node that does not have what they need.",
    cause="GPU feature discovery looked before the node changed, or another program writes the label",
    remedies=(_RENEW,),
    classes=RESTART,
)


def expected_labels(sharing: SharingSettings | None, gpus: Gpus, mig: Mig) -> Expected | None:
    """Return label -> the values that GPU feature discovery may give it on this node; None where nobody can say.

    Left out are labels of which the node's facts do not tell the value: the memory of a MIG device, say.

    + sharing: None where the plugin's configuration is the user's own: what depends on it is left out
    """
    gpus = replace(gpus, gpus=tuple(gpu for gpu in gpus.gpus if not is_display(gpu.name)))
    mig = replace(mig, gpus=tuple(gpu for gpu in mig.gpus if not is_display(gpu.name)))
    by_strategy = "none" if sharing is None else sharing.mig_strategy
    counted = offered(mig, by_strategy)
    if gpus.status != "ok" or counted is None:
        return None
    if sharing is not None and sharing.strategy == "mps" and any(gpu.enabled for gpu in mig.gpus):
        # Discovery ends, and writes no label.
        return None
    if not gpus.gpus:
        return {}
    found: Expected = _of_node(gpus, mig)
    if sharing is None:
        return found
    found[STRATEGY] = (None,) if by_strategy == "none" else (by_strategy,)
    found[MPS_CAPABLE] = (str(sharing.strategy == "mps").lower(),)
    found |= _of_gpus(sharing, gpus.gpus, mig)
    if by_strategy == "mixed":
        names = [gpu.name for gpu in mig.gpus if gpu.enabled]
        for profile, count in counted.profiles.items():
            found |= _base(sharing, f"nvidia.com/mig-{label_name(profile)}", names, count, profile)
    elif by_strategy == "single" and any(gpu.enabled for gpu in mig.gpus):
        found |= _single(sharing, mig, counted.profiles)
        # A MIG device's own, of which nvidia-smi's query tells nothing.
        if found[f"{WHOLE_GPU}.count"] != ("0",):
            found.pop(f"{WHOLE_GPU}.memory", None)
    return {name: values for name, values in found.items() if not any(len(each or "") > _LONGEST for each in values)}


def judge_feature_labels(settings: Settings, node: ClusterNode, gpus: Gpus | None, mig: Mig) -> Iterator[Finding]:
    """Yield whether GPU feature discovery says of a node what the node says of itself; nothing where it is not asked.

    + gpus: what nvidia-smi says of the node's GPUs; None: it was not asked
    """
    if not settings.device_plugin.gfd or gpus is None:
        return
    sharing = settings.sharing if settings.device_plugin.config_name is None else None
    expected = expected_labels(sharing, gpus, mig)
    if expected is None:
        # That is told of what the node is to offer.
        return
    told = [name for name, values in expected.items() if values != (None,)]
    if told and not any(name in node.labels for name in told):
        remedy = _LOOK.format(namespace=settings.device_plugin.namespace)
        yield FEATURE_LABELS.compared(None, f"{len(told)} labels", False, remedy=remedy)
        return
    left = () if sharing is None else (name for name in node.labels if _OF_A_PROFILE.fullmatch(name))
    remedy = _RENEW.format(namespace=settings.device_plugin.namespace, node=node.name)
    for name, values in sorted({**dict.fromkeys(left, (None,)), **expected}.items()):
        actual = node.labels.get(name)
        desired = " or ".join("none" if each is None else each or "''" for each in values)
        yield FEATURE_LABEL.compared(actual, desired, actual in values, of=name, remedy=remedy)


def _of_node(gpus: Gpus, mig: Mig) -> Expected:
    """Return what does not depend on how the GPUs are shared."""
    found: Expected = {CAPABLE: (str(any(gpu.capable for gpu in mig.gpus)).lower(),)}
    driver = gpus.gpus[0].driver_version
    found[DRIVER] = (driver,)
    if of_branch := _cuda_of(driver):
        found[RUNTIME] = of_branch
    return found


def _cuda_of(driver: str) -> tuple[str, ...]:
    """Return the CUDA that a driver's own library has: that of the toolkit released with its branch, if one was."""
    try:
        branch = versions.branch_of(driver)
    except versions.VersionError:
        return ()
    toolkits = tables.cuda().toolkit_driver.items()
    return tuple(
        dict.fromkeys(versions.major_minor(toolkit) for toolkit, by in toolkits if versions.branch_of(by) == branch)
    )


def _of_gpus(sharing: SharingSettings, gpus: tuple[Gpu, ...], mig: Mig) -> Expected:
    """Return the labels of nvidia.com/gpu by whole GPUs; GPUs in MIG mode tell theirs where there are none beside."""
    divided = {gpu.uuid for gpu in mig.gpus if gpu.enabled}
    whole = [gpu for gpu in gpus if gpu.uuid not in divided]
    found: Expected = {}
    for gpu in whole or gpus:
        count = sum(each.name == gpu.name for each in gpus)
        of_one = _base(sharing if whole else None, WHOLE_GPU, [gpu.name], count)
        if all(each.memory_mib for each in gpus):
            of_one[f"{WHOLE_GPU}.memory"] = (str(gpu.memory_mib),)
        # Of several models, either's value may be there.
        found = {name: tuple(dict.fromkeys((*found.get(name, ()), *values))) for name, values in of_one.items()}
    return found


def _single(sharing: SharingSettings, mig: Mig, devices: Mapping[str, int]) -> Expected:
    """Return the labels of nvidia.com/gpu where the strategy is `single`, and GPUs are in MIG mode."""
    divided = [gpu for gpu in mig.gpus if gpu.enabled]
    if (
        len(divided) < len(mig.gpus)
        or len(devices) != 1
        or not all(any(instance.compute for instance in gpu.instances or ()) for gpu in divided)
    ):
        invalid = {"count": ("0",), "replicas": ("0",), "sharing-strategy": ("",), "memory": ("0",)}
        products = _products([gpu.name for gpu in divided], "MIG-INVALID")
        return {f"{WHOLE_GPU}.product": products, **{f"{WHOLE_GPU}.{key}": each for key, each in invalid.items()}}
    ((profile, count),) = devices.items()
    return _base(sharing, WHOLE_GPU, [gpu.name for gpu in divided], count, profile)


def _base(
    sharing: SharingSettings | None, resource: str, models: list[str], count: int, profile: str | None = None
) -> Expected:
    """Return product, count, replicas and strategy of a resource.

    + sharing: None for GPUs in MIG mode, of which discovery tells no sharing
    + profile: of the MIG devices that the resource is of
    """
    shares = sharing is not None and sharing.strategy != "none"
    replicas = sharing.replicated.get(resource, 1) if sharing is not None and shares else 1
    behind = [] if profile is None else [f"MIG-{label_name(profile)}"]
    if sharing is not None and replicas > 1 and not sharing.rename:
        behind.append("SHARED")
    return {
        f"{resource}.product": _products(models, *behind),
        f"{resource}.count": (str(count),),
        f"{resource}.replicas": ("0" if sharing is None else str(replicas),),
        f"{resource}.sharing-strategy": (sharing.strategy if sharing is not None and replicas > 1 else "none",),
    }


def _products(models: list[str], *behind: str) -> tuple[str, ...]:
    """Return models' names as a label has them: without what it may not hold, and with dashes for spaces."""
    cleaned = ("-".join(re.sub(r"[^A-Za-z0-9_. -]", "", model).split()) for model in models)
    return tuple(dict.fromkeys("-".join((name, *behind)) for name in cleaned))


DESCRIBE_NODE = "see `kubectl describe node {node}`, and the node's kubelet"
_JOIN = "let it join the cluster, or set kubernetes.node_name to its name there"
_FOREIGN, _FIND = (
    "another program owns it, which gpunode does not overrule",
    "find out who sets it, or `kubectl label node {node} {label}-`",
)
_KEEPS = "the state of MIG on the node is not known, and the label keeps its value ({value})"
_READ = "do what the finding about MIG on this node says, and run again"
NODE = cluster_finding(
    "node of the cluster",
    "The node is not in the cluster, or not ready there.",
    "The settings say that the machine is a node of a cluster. Nothing can be scheduled on it.",
    remedies=(_JOIN, DESCRIBE_NODE),
)
LABEL = cluster_finding(
    "label",
    "A label of the node in the cluster is not as the settings ask.",
    "Labels decide which configuration the device plugin gives the node, and which pods come to it.",
    causes=(_FOREIGN, _KEEPS),
    remedies=(RUN_CLUSTER, _FIND, _READ),
    classes=RESTART,
)


@dataclass(frozen=True)
class DesiredLabels:
    """Hold the labels that a node is to have by gpunode, and those that gpunode leaves to people from now on.

    not_known: label -> why its value is not known; it keeps the one that it has, which may be the desired one
    """

    node: str
    labels: Mapping[str, str]
    given_up: tuple[str, ...] = ()
    not_known: Mapping[str, str] = field(default_factory=dict)

    def change(self, actual: ClusterNode) -> LabelChange:
        """Return what brings the node's labels about."""
        return label_change(self.labels, actual.labels, actual.ours, self.given_up, self.not_known)


def desired_labels(node: str, settings: Settings, mig_state: str | Unknown | None = None) -> DesiredLabels:
    """Return the labels that a node is to have by its settings.

    mig_state: one of MIG_STATES, Unknown where the state of the node's MIG configuration is not known, or None
    """
    if not isinstance(mig_state, Unknown):
        return DesiredLabels(node, wanted_labels(settings, mig_state), given_up(settings))
    # With a new configuration's name, the state of the former one would be a false report.
    not_known = dict.fromkeys((MIG_CONFIG, MIG_STATE), mig_state.reason) if has_mig_state(settings) else {}
    labels, leaves = wanted_labels(settings), given_up(settings)
    return DesiredLabels(node, labels, leaves, {name: why for name, why in not_known.items() if name not in leaves})


def decide_labels(desired: DesiredLabels, actual: ClusterNode | None) -> Decision[LabelChange]:
    """Return what is to be done about a node's labels; None: the cluster has no such node."""
    if actual is None:
        if not desired.labels:
            return Decision(())
        item = NODE.compared(None, desired.node, False, remedy=_JOIN)
        return Decision((item,), (), f"the cluster has no node {desired.node}: {_JOIN}")
    change = desired.change(actual)
    findings = tuple(_findings(desired, actual, change))
    if change.is_none:
        return Decision(findings)
    settles = tuple(item for item in bad(*findings) if LABEL.named(item) not in change.conflicts)
    return Decision(findings, (Step(f"label node {desired.node}", settles, Disruption.nothing, change=change),))


def _findings(desired: DesiredLabels, actual: ClusterNode, change: LabelChange) -> Iterator[Finding]:
    for name, value in desired.labels.items():
        foreign = name in change.conflicts
        cause = _FOREIGN if foreign else None
        remedy = _FIND.format(node=actual.name, label=name) if foreign else RUN_CLUSTER
        if _is_kept(desired, actual, change, name):
            continue
        good = not foreign and name not in change.to_set
        found = _shown(actual.labels.get(name))
        yield LABEL.compared(found, _shown(value), good, of=name, cause=cause, remedy=remedy)
    for name, reason in desired.not_known.items():
        if _is_kept(desired, actual, change, name):
            cause = f"{_KEEPS.format(value=_shown(actual.labels.get(name)) or 'none')}: {reason}"
            yield LABEL.not_known(desired.labels.get(name, AS_DESIRED), cause, _READ, of=name)
    for name in change.to_remove:
        yield LABEL.compared(_shown(actual.labels[name]), "none", False, of=name)
    if change.annotates and not (change.to_set or change.to_remove):
        yield ANNOTATION.compared(actual.ours, change.ours or "none", False, of=OURS)


def _is_kept(desired: DesiredLabels, actual: ClusterNode, change: LabelChange, name: str) -> bool:
    """Return whether a label keeps a value that may be wrong, because what it reports is not known."""
    is_good = name in desired.labels and actual.labels.get(name) == desired.labels[name]
    return name in desired.not_known and not is_good and name not in change.conflicts


def _shown(value: str | None) -> str | None:
    """Return a label's value as it is told: an empty one, as a role has it, is to be seen."""
    return '""' if value == "" else value
