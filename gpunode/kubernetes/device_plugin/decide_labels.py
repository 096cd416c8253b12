"""What is to be done about a node's labels in the cluster: every comparison, and the step that removes differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpunode.base.comparison import compared
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.subject import Subject
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import COMPONENT, RUN_CLUSTER
from gpunode.kubernetes.nodes.labels import OURS, LabelChange, given_up, label_change, wanted_labels
from gpunode.settings import Settings


@dataclass(frozen=True)
class DesiredLabels:
    """Hold the labels that a node is to have by gpunode, and those that gpunode leaves to people from now on."""

    node: str
    labels: Mapping[str, str]
    given_up: tuple[str, ...] = ()

    def change(self, actual: ClusterNode) -> LabelChange:
        """Return what brings the node's labels about."""
        return label_change(self.labels, actual.labels, actual.ours, self.given_up)


def desired_labels(node: str, settings: Settings, mig_state: str | None = None) -> DesiredLabels:
    """Return the labels that a node is to have by its settings; `mig_state` as `wanted_labels` has it."""
    return DesiredLabels(node, wanted_labels(settings, mig_state), given_up(settings))


def decide_labels(desired: DesiredLabels, actual: ClusterNode | None) -> Decision[LabelChange]:
    """Return what is to be done about a node's labels; None: the cluster has no such node."""
    if actual is None:
        if not desired.labels:
            return Decision(())
        remedy = "let it join the cluster, or set kubernetes.node_name to its name there"
        item = compared(COMPONENT, Subject.CLUSTER_NODE, None, desired.node, False, remedy)
        return Decision((item,), (), f"the cluster has no node {desired.node}: {remedy}")
    change = desired.change(actual)
    findings = tuple(_findings(desired, actual, change))
    if change.is_none:
        return Decision(findings)
    theirs = {Subject.LABEL.of(name) for name in change.conflicts}
    settles = tuple(item for item in bad(*findings) if item.what not in theirs)
    return Decision(findings, (Step(f"label node {desired.node}", settles, Disruption.nothing, change=change),))


def _findings(desired: DesiredLabels, actual: ClusterNode, change: LabelChange) -> Iterator[Finding]:
    for name, value in desired.labels.items():
        foreign = name in change.conflicts
        cause = "it is somebody else's, whom gpunode does not overrule" if foreign else None
        remedy = f"find out who sets it, or `kubectl label node {actual.name} {name}-`" if foreign else RUN_CLUSTER
        good = not foreign and name not in change.to_set
        found = _shown(actual.labels.get(name))
        yield compared(COMPONENT, Subject.LABEL.of(name), found, _shown(value), good, remedy, cause)
    for name in change.to_remove:
        yield compared(COMPONENT, Subject.LABEL.of(name), _shown(actual.labels[name]), "none", False, RUN_CLUSTER)
    if change.annotates and not (change.to_set or change.to_remove):
        yield compared(
            COMPONENT,
            Subject.ANNOTATION.of(OURS),
            actual.ours,
            change.ours or "none",
            False,
            RUN_CLUSTER,
            "it names the labels that are gpunode's, and those are other ones",
        )


def _shown(value: str | None) -> str | None:
    """Return a label's value as it is told: an empty one, as a role has it, is to be seen."""
    return '""' if value == "" else value
