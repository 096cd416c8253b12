"""What is to be done about gpunode's own objects in a cluster: one comparison of all, and one step that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import Scope
from gpunode.kubernetes.nodes.component import RUN_CLUSTER, cluster_finding
from gpunode.kubernetes.objects.own_objects import METHOD, Document, ObjectsChange, look_at, objects_change

_FEW = 5

_KEPT = "no longer desired, and kept: nodes that this run does not change are labelled for it"
_ILL = "as desired, and does not run on every node that it is for"
_TAKE_AWAY = "take {object} away, or set device_plugin.method to 'none'"
OWN_OBJECTS = cluster_finding(
    "gpunode's objects",
    "gpunode's own objects in the cluster are not what the settings ask for.",
    "Without a chart gpunode creates the device plugin's objects itself. They were edited, are missing or left "
    "over, another owner has one of the same name, or they do not run on every node.",
    name="own-objects",
    causes=(_KEPT, _ILL),
    remedies=(RUN_CLUSTER, _TAKE_AWAY),
    scope=Scope.CLUSTER,
)


def decide(
    desired: Sequence[Document],
    actual: str,
    owned: str,
    staying: Sequence[Mapping[str, str]] = (),
    not_ready: Sequence[Mapping[str, str]] = (),
) -> Decision[ObjectsChange]:
    """Return what is to be done about the objects; arguments and errors are those of `objects_change`.

    A workload that only has to be waited for is a step that settles nothing: what it runs is the verdict's matter.
    """
    change = objects_change(desired, actual, owned, staying, not_ready)
    findings = (*_compared(change, bool(desired)), *_cautions(change))
    if change.conflicts:
        names = ", ".join(map(str, change.conflicts))
        refusal = (
            f"{names}: there already, and somebody else's (no label {METHOD}). Remedy: take it away, or leave out what "
            "brings it: set device_plugin.method to 'none', or take the plugin out of kubernetes.device_plugins"
        )
        return Decision(findings, (), refusal)
    if change.is_none:
        return Decision(findings)
    settles = tuple(item for item in findings if item.finding_class is not FindingClass.OK)
    return Decision(findings, (Step("bring about gpunode's objects", settles, Disruption.nothing, change=change),))


def _compared(change: ObjectsChange, any_desired: bool) -> Iterator[Finding]:
    foreign = [f"{each} is somebody else's" for each in change.conflicts]
    left = [f"{each} is no longer asked for" for each in change.remove]
    reason = "; ".join([*foreign, *map(str, change.differences), *left][:_FEW])
    if any_desired or reason:
        actual = "others" if reason else "as desired"
        remedy = _TAKE_AWAY.format(object=change.conflicts[0]) if foreign else RUN_CLUSTER
        yield OWN_OBJECTS.compared(actual, "as desired", not reason, cause=reason, remedy=remedy)


def _cautions(change: ObjectsChange) -> Iterator[Finding]:
    """Yield what stays as it is, and a person should know of."""
    if change.kept:
        names = ", ".join(f"{each.kind} {each.name}" for each in change.kept[:_FEW])
        yield replace(OWN_OBJECTS.finding(FindingClass.OK, "there", "there", cause=_KEPT), what=names)
    for each in change.ill:
        item = OWN_OBJECTS.finding(FindingClass.OK, "as desired", "as desired", cause=_ILL, remedy=look_at(each))
        yield replace(item, what=str(each))
