"""Objects in the cluster that are gpunode's own: by which labels they are known, what is to be done about them.

They are what the methods without a helm release consist of. What is no longer asked for goes, but for what nodes that a
run does not change are labelled for; what others made stays, and is refused in the place of one of ours.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import Scope
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import load_documents, load_json
from gpunode.base.template import rendered
from gpunode.kubernetes.helm.manifest import Difference, Identity, drifted, live_objects, objects
from gpunode.kubernetes.nodes.component import RUN_CLUSTER, cluster_finding
from gpunode.kubernetes.nodes.labels import CONFIG, GPUSHARE, SERVED_BY, plugin_label
from gpunode.kubernetes.objects.runtime_class import MANAGED_BY

METHOD = "gpunode/way"
DIGEST = "gpunode/digest"
# What gpunode makes anywhere: none else is looked at, or removed. Workloads first, then what they live by.
KINDS = (
    "daemonsets.apps",
    "deployments.apps",
    "services",
    "configmaps",
    "rolebindings.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "serviceaccounts",
)
_WORKLOADS = ("DaemonSet", "Deployment")
# The labels of the nodes that need a method's objects.
SELECTED_BY = {"manifest": {SERVED_BY: "manifest"}, "gpushare": {GPUSHARE: "true"}}
# Of device plugins other than NVIDIA's: what their method begins with, behind which the plugin's name stands.
_OF_PLUGIN = "plugin."
Document = Mapping[str, Any]


@dataclass(frozen=True)
class ObjectsChange:
    """Hold what is to be done: objects to apply (all of them, or none), to remove, and to wait for.

    differences: why they are applied; conflicts: objects of somebody else's in the place of ours; kept: no longer asked
    for, and needed by nodes that keep their labels; ill: workloads that do not run everywhere, with nothing to be done
    """

    apply: tuple[Document, ...]
    remove: tuple[Identity, ...]
    unready: tuple[Identity, ...]
    differences: tuple[Difference, ...]
    conflicts: tuple[Identity, ...]
    kept: tuple[Identity, ...] = ()
    ill: tuple[Identity, ...] = ()

    @property
    def is_none(self) -> bool:
        """Say whether there is nothing to do."""
        return not (self.apply or self.remove or self.unready)


def from_template(source: str, **values: Any) -> list[dict[str, Any]]:
    """Return the objects of a template below templates/kubernetes/ with `values`, in the order to make them."""
    return [document for _, document in load_documents(rendered(f"kubernetes/{source}", **values))]


def marked(document: Document, method: str) -> dict[str, Any]:
    """Return an object with the labels by which it is gpunode's, and the digest of what it was made to say."""
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
    metadata = dict(document["metadata"])
    metadata["labels"] = {**metadata.get("labels", {}), **dict([MANAGED_BY]), METHOD: method}
    # A field that is left out by a later gpunode is no difference of an object that others add to.
    metadata["annotations"] = {**metadata.get("annotations", {}), DIGEST: digest}
    return {**document, "metadata": metadata}


def objects_change(
    desired: Sequence[Document],
    actual: str,
    owned: str,
    staying: Sequence[Mapping[str, str]] = (),
    not_ready: Sequence[Mapping[str, str]] = (),
) -> ObjectsChange:
    """Return what brings gpunode's objects about; raise ParseError.

    + actual: the objects of these names, whoever's they are
    + owned: all objects with gpunode's labels
    + staying: labels of each node that keeps them in this run, be it of this inventory or of none
    + not_ready: labels of each node that is not Ready, where no update comes
    """
    live = live_objects(actual, "")
    ours = {identity: each for identity, each in live_objects(owned, "").items() if way_of(each.content) is not None}
    left = {each: ours[each].content for each in ours if each not in objects(text(desired), "")}
    kept = {identity: content for identity, content in left.items() if is_needed(content, staying)}
    desired = [_with_entries_of(kept, each, ours) for each in desired]
    target = objects(text(desired), "")
    # A namespace is shared ground: made where there is none, and no more.
    spaces = {identity for identity in target if identity.kind == "Namespace"}
    conflicts = [each for each in live if each in target and each not in ours and each not in spaces]
    found = drifted({name: each for name, each in target.items() if name not in spaces or name not in live}, live)
    unready = dict(_unready(actual, target))
    pending = {each for each, workload in unready.items() if not _is_rolled_out(workload, not_ready)}
    return ObjectsChange(
        apply=tuple(desired) if found and not conflicts else (),
        remove=tuple(sorted((each for each in left if each not in kept), key=_order)),
        unready=tuple(each for each in unready if each in pending),
        differences=found,
        conflicts=tuple(sorted(conflicts)),
        kept=tuple(sorted(kept)),
        ill=tuple(each for each in unready if each not in pending),
    )


def method_of_plugin(name: str) -> str:
    """Return the method of a device plugin other than NVIDIA's: one for each, for each has nodes of its own."""
    return f"{_OF_PLUGIN}{name}"


def is_needed(content: Any, staying: Sequence[Mapping[str, str]]) -> bool:
    """Say whether a node with such labels needs an object: a DaemonSet by what it selects, all else by its method."""
    method = content["metadata"]["labels"][METHOD]
    if method.startswith(_OF_PLUGIN):
        label = plugin_label(method.removeprefix(_OF_PLUGIN))
        return any(labels.get(label) == "true" for labels in staying)
    selected = SELECTED_BY.get(method, {})
    if content.get("kind") == "DaemonSet":
        selected = _selector(content) or selected
    return any(selected.items() <= labels.items() for labels in staying)


def _selector(content: Any) -> dict[str, str]:
    found = (content.get("spec") or {}).get("template") or {}
    return dict((found.get("spec") or {}).get("nodeSelector") or {})


def _with_entries_of(kept: Mapping[Identity, Any], desired: Document, ours: Mapping[Identity, Any]) -> Document:
    """Return an object; a ConfigMap with the entries that DaemonSets which are kept begin by."""
    (identity,) = objects(text([desired]), "")
    of_manifest = (desired["metadata"].get("labels") or {}).get(METHOD) == "manifest"
    if identity.kind != "ConfigMap" or identity not in ours or not of_manifest:
        return desired
    names = {_selector(content).get(CONFIG) for content in kept.values()} - desired["data"].keys()
    actual = ours[identity].content.get("data") or {}
    entries = {name: text for name, text in actual.items() if name in names}
    if not entries:
        return desired
    return marked({**desired, "data": dict(sorted({**desired["data"], **entries}.items()))}, "manifest")


def way_of(content: Document) -> str | None:
    """Return the method for which gpunode made an object; None where it did not."""
    label, value = MANAGED_BY
    labels = content["metadata"].get("labels") or {}
    return str(labels[METHOD]) if labels.get(label) == value and METHOD in labels else None


def _order(identity: Identity) -> tuple[int, Identity]:
    kinds = [each.partition(".")[0] for each in KINDS]
    name = f"{identity.kind.lower()}s"
    return (kinds.index(name) if name in kinds else len(kinds)), identity


def _unready(actual: str, target: Mapping[Identity, Any]) -> Iterator[tuple[Identity, Document]]:
    """Yield the workloads that are there, and not yet what they are to be."""
    document = load_json(actual) if actual.strip() else {}
    for each in document.get("items", [document] if document else []):
        metadata = each.get("metadata") or {}
        group = str(each.get("apiVersion", "")).partition("/")[0]
        identity = Identity(group, str(each.get("kind")), metadata.get("namespace") or "", str(metadata.get("name")))
        if identity.kind in _WORKLOADS and identity in target and not is_ready(each):
            yield identity, each


def _is_rolled_out(workload: Document, not_ready: Sequence[Mapping[str, str]]) -> bool:
    """Say whether an update has come to all nodes that it can come to; what it runs there is the verdict's matter."""
    selected = _selector(workload).items()
    down = 0 if workload.get("kind") == "Deployment" else sum(selected <= labels.items() for labels in not_ready)
    desired, updated, _ = _counts(workload)
    return updated >= desired - down


def is_ready(workload: Document) -> bool:
    """Say whether a DaemonSet or Deployment, as the API server has it, runs what it is to run wherever it is to."""
    desired, updated, available = _counts(workload)
    return min(updated, available) >= desired


def _counts(workload: Document) -> tuple[float, int, int]:
    """Return how many pods are desired, have its newest form, and run; more than any where nobody looked at it yet."""
    status, generation = workload.get("status") or {}, (workload.get("metadata") or {}).get("generation", 0)
    if workload.get("kind") == "Deployment":
        desired, names = (workload.get("spec") or {}).get("replicas", 1), ("updatedReplicas", "availableReplicas")
    else:
        desired, names = status.get("desiredNumberScheduled", 0), ("updatedNumberScheduled", "numberAvailable")
    updated, available = (status.get(name, 0) for name in names)
    return (inf if status.get("observedGeneration", 0) < generation else desired), updated, available


def text(documents: Sequence[Document]) -> str:
    """Return objects as kubectl takes them."""
    return "\n---\n".join(json.dumps(each) for each in documents)


def look_at(identity: Identity) -> str:
    """Return where a person sees why a workload does not run."""
    return f"look at `kubectl -n {identity.namespace} describe {identity.kind.lower()} {identity.name}`"


def workloads(desired: Sequence[Document]) -> tuple[Identity, ...]:
    """Return the workloads among objects that are to be."""
    try:
        return tuple(each for each in objects(text(desired), "") if each.kind in _WORKLOADS)
    except ParseError:
        return ()


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
