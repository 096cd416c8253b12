"""What is to be done about gpunode's own objects in a cluster: one comparison of all, and one step that holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpunode.base.codes import code_of
from gpunode.base.comparison import compared
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject
from gpunode.kubernetes.nodes.component import COMPONENT, RUN_CLUSTER
from gpunode.kubernetes.objects.own_objects import METHOD, Document, ObjectsChange, look_at, objects_change

_FEW = 5
# A caution names the objects themselves.
_CODE = code_of(COMPONENT, Subject.OWN_OBJECTS)


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
            f"{names}: there already, and somebody else's (no label {METHOD}); take it away, or leave out what "
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
        remedy = f"take {change.conflicts[0]} away, or set device_plugin.method to 'none'" if foreign else RUN_CLUSTER
        yield compared(COMPONENT, Subject.OWN_OBJECTS, actual, "as desired", not reason, remedy, reason)


def _cautions(change: ObjectsChange) -> Iterator[Finding]:
    """Yield what stays as it is, and a person should know of."""
    if change.kept:
        names = ", ".join(f"{each.kind} {each.name}" for each in change.kept[:_FEW])
        cause = "no longer asked for, and left: nodes that this run does not change are labelled for it"
        yield Finding(COMPONENT, FindingClass.OK, names, "there", "there", cause, code=_CODE)
    for each in change.ill:
        cause = "as desired, and does not run wherever it is to"
        remedy = look_at(each)
        yield Finding(COMPONENT, FindingClass.OK, str(each), "as desired", "as desired", cause, remedy, code=_CODE)
