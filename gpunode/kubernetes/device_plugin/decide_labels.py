"""What is to be done about a node's labels in the cluster: every comparison, and the step that removes differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpunode.base.comparison import AS_DESIRED, RESTART
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.reading import Unknown
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
