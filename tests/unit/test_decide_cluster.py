"""What a cluster has one of is decided once: drift finds what a run changes, and what no run changes is a person's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import Decision, bad, marked
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.boot import MigBoot
from gpunode.fleet import cluster as fleet_cluster
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes import gpu_operator
from gpunode.kubernetes.device_plugin import others, pod_security
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_labels import NODE
from gpunode.kubernetes.device_plugin.decide_pods import decide_current
from gpunode.kubernetes.device_plugin.methods import class_alone, wanted_objects
from gpunode.kubernetes.device_plugin.others import SECOND_PLUGIN, Plugin
from gpunode.kubernetes.device_plugin.view import Pod, View
from gpunode.kubernetes.gpushare.configuration import FOLDER, Extender
from gpunode.kubernetes.gpushare.decide import DesiredScheduler, SchedulerState, wanted
from gpunode.kubernetes.gpushare.decide import decide as decide_scheduler
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, parse_nodes
from gpunode.kubernetes.nodes.labels import CONFIG, OURS, PRESENT, SERVED_BY
from gpunode.kubernetes.objects import runtime_class
from gpunode.kubernetes.objects.own_objects import METHOD, OWN_OBJECTS
from gpunode.operations import control_plane, device_plugin, methods
from gpunode.settings import Settings, check_hosts, settings_from
from tests.support.cluster_fleet import of_both
from tests.support.messages import unnamed
from tests.support.scheduler_manifest import KUBEADM
from tests.support.simulated_cluster import node
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

SPACE = "nvidia-device-plugin"
_SHARED = {"strategy": "time-slicing", "replicas": 5}
_BY_CLASS = {"containerd": {"default_runtime": "runc"}}
_RDMA = {"enabled": True, "image": "registry.example/rdma:1", "resources": {"rdma/a": {"vendors": ["15b3"]}}}
_METHODS: tuple[dict[str, Any], ...] = (
    {"device_plugin": {"method": "none"}},
    {"device_plugin": {"method": "manifest"}},
    {"device_plugin": {"method": "manifest"}, "sharing": _SHARED, **_BY_CLASS},
    {"device_plugin": {"method": "gpushare"}, "gpushare": {"scheduler": "theirs"}, **_BY_CLASS},
    {"device_plugin": {"method": "none"}, "rdma_shared_device_plugin": _RDMA},
    {"device_plugin": {"method": "manifest"}, "rdma_shared_device_plugin": {**_RDMA, "namespace": SPACE}},
)


def _settings(data: dict[str, Any]) -> Settings:
    return check_hosts({"gpu-1": {"kubernetes": {"enabled": True}, **data}})["gpu-1"]


def _different(decision: Decision[Any]) -> tuple[Finding, ...]:
    """Return the differences, after a look at the decision: each is a step's, or a person's to mend."""
    decision = marked(decision)
    different = bad(*decision.findings)
    settled = [item for step in decision.steps for item in step.settles]
    assert all(item in different for item in settled)
    assert all(item in settled or item.by_person for item in different)
    assert not (decision.refusal and decision.steps) and bool(decision.refusal) == any(i.by_person for i in different)
    return different


def _named(document: dict[str, Any]) -> str:
    return f"{document['kind'].lower()}/{document['metadata']['name']}"


def _documents(text: str | None) -> list[dict[str, Any]]:
    return [json.loads(each) for each in (text or "").split("\n---\n")]


@dataclass
class Kubectl:
    """SIMULATED: a cluster in memory that kubectl tells of, and changes at once."""

    runtime_class: dict[str, Any] | None = None
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    own: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, Any] = field(default_factory=lambda: {"gpu-1": node("gpu-1")})
    changes: int = 0

    def __call__(self, command: Command) -> Output:
        """Carry a command out."""
        words = command.words[1:]
        found = self._told(words, command.stdin)
        self.changes += words[0] not in ("get", "api-versions", "rollout")
        return Output(0, found if isinstance(found, str) else json.dumps(found), "")

    def _told(self, words: tuple[str, ...], text: str | None) -> Any:
        match words[:2]:
            case ("get", "nodes"):
                return {"items": list(self.nodes.values())}
            case ("get", "runtimeclasses.node.k8s.io"):
                return self.runtime_class or ""
            case ("get", "namespace"):
                return {"metadata": {"labels": self.namespaces[words[2]]}} if words[2] in self.namespaces else ""
            case ("get", "--filename"):
                desired = map(_named, _documents(text))
                return {"kind": "List", "items": [self.own[name] for name in desired if name in self.own]}
            case ("get", "daemonsets.apps,pods" | "daemonsets.apps"):
                return {"items": []}
            case ("get", _):
                return {
                    "kind": "List",
                    "items": [each for each in self.own.values() if METHOD in each["metadata"].get("labels", {})],
                }
            case ("label", _):
                self.namespaces[words[2]] |= dict([words[3].split("=")])
            case ("delete", kind):
                del self.own[f"{kind.partition('.')[0]}/{words[2]}"]
            case ("apply", _):
                ready = {"status": {"updatedReplicas": 1, "availableReplicas": 1}}
                self.own |= {_named(each): {**each, **ready} for each in _documents(text)}
            case ("create" | "replace", _):
                (made,) = _documents(text)
                if made["kind"] == "Namespace":
                    self.namespaces[made["metadata"]["name"]] = made["metadata"]["labels"]
                else:
                    self.runtime_class = made
        return ""


@contextmanager
def _run_on(kubectl: Kubectl) -> Iterator[Host]:
    """Give a host whose operations are of this cluster, all of whose nodes the run labels."""
    host, nodes = Host({}), parse_nodes(json.dumps({"items": list(kubectl.nodes.values())}))
    with (
        ctx_host.use(host),
        patch.object(device_plugin, "runner", lambda _: kubectl),
        patch.object(control_plane, "runner", lambda _: kubectl),
        patch.object(methods, "nodes", lambda _: nodes),
        patch.object(methods, "relabelled", lambda _: frozenset(nodes)),
    ):
        yield host


def _found(kubectl: Kubectl, hosts: Mapping[str, Settings], *judged: str) -> tuple[Finding, ...]:
    """Return what drift finds of the first node, where these are judged."""

    @contextmanager
    def reached(*_: Any) -> Iterator[Kubectl]:
        yield kubectl

    with patch.object(fleet_cluster, "reached", reached):
        return tuple(of_both(fleet_cluster.findings(Path("none.py"), hosts, dict.fromkeys(judged, GOOD))))


def _drift(kubectl: Kubectl, settings: Settings) -> dict[str, Finding]:
    """Return what drift finds otherwise, by what it is about."""
    found = _found(kubectl, {"gpu-1": settings}, "gpu-1")
    return {item.what: item for item in found if item.finding_class is not FindingClass.OK}


def _waiting(labels: dict[str, str]) -> dict[str, Any]:
    """Return a node that waits for its wave, with labels of gpunode's for its former method."""
    annotations = {OURS: json.dumps([*labels])}
    return {**node("gpu-2"), "metadata": {"name": "gpu-2", "labels": labels, "annotations": annotations}}


def _agree(kubectl: Kubectl, settings: Settings, what: str, operation: Any, **arguments: Any) -> None:
    """Find that a run changes once what drift tells of, and refuses what drift calls a person's."""
    before = _drift(kubectl, settings).get(what)
    assert kubectl.changes == 0
    with _run_on(kubectl) as host:
        done = [each.function(host.state, host, *each.args) for each in operation._inner(**arguments)]
    assert all(done) == (before is None or not before.by_person)
    assert bool(kubectl.changes) == (before is not None and not before.by_person)
    assert bool(host.noops) == (before is None)
    after = _drift(kubectl, settings).get(what)
    assert after == (before if before is not None and before.by_person else None)


_HANDLERS = st.sampled_from(["nvidia", "runc", None])
_CLASSES = st.one_of(
    st.none(),
    st.builds(
        lambda labels, handler: {"kind": "RuntimeClass", "metadata": {"labels": labels}, "handler": handler},
        st.sampled_from([None, {}, dict([runtime_class.MANAGED_BY]), {"team": "a"}]),
        _HANDLERS,
    ),
)


@given(actual=_CLASSES)
def test_run_and_drift_agree_on_the_runtime_class(
    actual: dict[str, Any] | None,
) -> None:
    desired = runtime_class.runtime_class()
    decision = runtime_class.decide(desired, actual)
    assert bool(_different(decision)) == (actual is None or actual["handler"] != "nvidia")
    if decision.steps:
        assert not _different(runtime_class.decide(desired, desired))
    settings = _settings(_METHODS[2])
    chosen = class_alone({"gpu-1": settings})
    arguments = {"desired_cluster": chosen, "proxy": settings.proxy}
    _agree(Kubectl(actual), settings, "RuntimeClass", device_plugin.runtime_class, **arguments)


_LEVELS = st.sampled_from([None, {}, {"team": "a"}, *({pod_security.LABEL: x} for x in ("privileged", "baseline"))])


@given(first=_LEVELS, second=_LEVELS)
def test_run_and_drift_agree_on_two_namespaces(first: dict[str, str] | None, second: dict[str, str] | None) -> None:
    actual = {name: dict(labels) for name, labels in (("a", first), ("b", second)) if labels is not None}
    desired = {"a": "device_plugin.namespace", "b": "gpu_operator.namespace"}
    there = {name: actual.get(name) for name in desired}
    decision = pod_security.decide(desired, there)
    assert len(_different(decision)) == sum(
        (each or {}).get(pod_security.LABEL) != "privileged" for each in (first, second)
    )
    kubectl = Kubectl(namespaces=actual)
    for step in decision.steps:
        assert step.change is not None
        kubectl(Command(("kubectl", *step.change[0]), {}, 1, stdin=step.change[1]))
    if decision.refusal is None:
        after = {name: kubectl.namespaces[name] for name in desired}
        assert not _different(pod_security.decide(desired, after))
        # What others labelled it for stays.
        assert all(labels.items() <= after[name].items() for name, labels in there.items() if labels)


@given(labels=_LEVELS)
def test_drift_and_run_agree_on_a_namespace(labels: dict[str, str] | None) -> None:
    settings = _settings(_METHODS[1])
    kubectl = Kubectl(namespaces={} if labels is None else {SPACE: dict(labels)})
    arguments = {"namespaces": {SPACE: "device_plugin.namespace"}, "cluster_of": settings}
    _agree(kubectl, settings, f"namespace {SPACE}", methods.admitted, **arguments)


def _changed_by_hand(document: dict[str, Any], how: str) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(document))
    if how == "somebody else's":
        changed["metadata"].pop("labels", None)
    if how == "edited" and document["kind"] in ("DaemonSet", "Deployment"):
        changed["spec"]["template"]["spec"]["priorityClassName"] = "other"
    if how == "added to":
        changed["metadata"]["uid"] = "1"
    return {**changed, "status": {"updatedReplicas": 1, "availableReplicas": 1}}


@given(
    desired=st.sampled_from(_METHODS),
    before=st.lists(st.sampled_from(_METHODS), max_size=2),
    hands=st.lists(
        st.sampled_from(["", "", "added to", "edited", "gone", "somebody else's"]), min_size=40, max_size=40
    ),
    labels=st.sampled_from(
        [
            {},
            {SERVED_BY: "manifest", CONFIG: "none"},
            {"gpushare": "true"},
            {"gpunode/device-plugin.rdma-shared": "true"},
        ]
    ),
)
def test_a_run_brings_about_the_objects_that_drift_finds_otherwise_and_takes_away_what_is_left(
    desired: dict[str, Any], before: list[dict[str, Any]], hands: list[str], labels: dict[str, str]
) -> None:
    settings = _settings(desired)
    made = [each for method in before for each in wanted_objects({"gpu-1": _settings(method)})]
    there = {_named(each): _changed_by_hand(each, how) for each, how in zip(made, hands, strict=False) if how != "gone"}
    kubectl = Kubectl(own=there)
    # Of another inventory: what it needs is kept.
    kubectl.nodes["gpu-2"] = {**node("gpu-2"), "metadata": {"name": "gpu-2", "labels": labels}}
    documents = wanted_objects({"gpu-1": settings})
    nodes = parse_nodes(json.dumps({"items": [*kubectl.nodes.values()]}))
    cluster = Cluster(settings.kubernetes, settings.proxy, kubectl)
    decision = cluster.decide_objects(documents, nodes, {"gpu-1"})
    different = _different(decision)
    assert set(different) == {item for what, item in _drift(kubectl, settings).items() if what == OWN_OBJECTS.what}
    own = dict(kubectl.own)
    with _run_on(kubectl) as host, patch.object(methods, "relabelled", lambda _: frozenset({"gpu-1"})):
        done = [each.function(host.state, host, *each.args) for each in methods.objects._inner(documents, settings, {})]
    assert all(done) == (decision.refusal is None) and bool(host.noops) == (not decision.steps and all(done))
    if decision.refusal is not None:
        assert kubectl.own == own and host.refusals
        return
    after = cluster.decide_objects(documents, nodes, {"gpu-1"})
    assert not _different(after) and not after.steps and bool(kubectl.changes) == bool(different)
    # Nothing of anybody else's went.
    assert all(name in kubectl.own for name, each in own.items() if METHOD not in each["metadata"].get("labels", {}))


def test_objects_that_other_nodes_still_need_are_no_drift() -> None:
    # The gate of a rollout looks at the nodes of a wave, while the others still have their former method.
    former, settings = _settings(_METHODS[1]), _settings({"device_plugin": {"method": "none"}})
    own = {_named(each): each for each in wanted_objects({"gpu-1": former})}
    kubectl = Kubectl(
        own=own, nodes={"gpu-1": node("gpu-1"), "gpu-2": _waiting({SERVED_BY: "manifest", CONFIG: "none"})}
    )
    assert _drift(kubectl, settings) == {}
    del kubectl.nodes["gpu-2"]
    assert [*_drift(kubectl, settings)] == [OWN_OBJECTS.what]


def test_the_gate_finds_no_release_that_nodes_of_later_waves_are_labelled_for() -> None:
    hosts = check_hosts({f"gpu-{each}": {"kubernetes": {"enabled": True}, **_METHODS[1]} for each in (1, 2)})
    kubectl = Kubectl(nodes={"gpu-1": node("gpu-1"), "gpu-2": _waiting({PRESENT: "true"})})
    for judged, there in ((["gpu-1"], False), (["gpu-1", "gpu-2"], True)):
        assert any(item.what.startswith("helm release") for item in _found(kubectl, hosts, *judged)) is there


EXTENDERS = st.sampled_from([None, Extender("http://a:1"), Extender("http://b:2", ignorable=True)])


@st.composite
def _schedulers(draw: st.DrawFn) -> SchedulerState:
    """Return a host whose scheduler was changed once, and may have been changed by others since."""
    change = wanted(KUBEADM, draw(EXTENDERS), None)
    made = change.configuration
    unmarked = change.manifest.replace("  # gpunode gpushare", "")
    manifest = draw(st.sampled_from([None, KUBEADM, change.manifest, change.manifest, unmarked, "no: [manifest"]))
    digest = hashlib.sha256(made.text.encode()).hexdigest() if made else ""
    files = draw(st.sampled_from([{}, {made.path: digest}, {made.path: "other"}])) if made else {}
    by = draw(st.sampled_from(["", f"--config={made.path}"])) if made else ""
    return SchedulerState(manifest, files, (("kube-scheduler", by),))


@given(extender=EXTENDERS, actual=_schedulers())
def test_a_scheduler_is_changed_once_or_is_a_person_s(extender: Extender | None, actual: SchedulerState) -> None:
    desired = DesiredScheduler(extender, "/etc/m.yaml", None)
    decision = decide_scheduler(desired, actual)
    different = _different(decision)
    if extender is None and (actual.manifest is None or FOLDER not in actual.manifest):
        assert not different
    for step in decision.steps:
        assert step.change is not None
        made = step.change.configuration
        digests = {made.path: hashlib.sha256(made.text.encode()).hexdigest()} if made else {}
        words = ("kube-scheduler", f"--config={made.path}") if made else ("kube-scheduler",)
        after = SchedulerState(step.change.manifest, digests, (words,))
        assert not _different(decide_scheduler(desired, after))


def test_drift_reads_the_scheduler_of_a_host_that_is_judged_and_tells_of_one_that_asks_no_extender() -> None:
    shared = {"device_plugin": {"method": "gpushare"}, "gpushare": {"schedulers": ["cp-1"]}}
    hosts = check_hosts({"gpu-1": {"kubernetes": {"enabled": True}, **shared}, "cp-1": {}})
    reading = SchedulerState(KUBEADM, {}, (("kube-scheduler",),))

    def found(answer: Any, *judged: str) -> dict[str, list[Finding]]:
        asked: list[Any] = []

        def read(_: Path, fact: Any, only: list[str]) -> tuple[Answer[Any], ...]:
            asked.append(str(fact().command()))
            return tuple(Answer(name, hosts[name], answer, "no connection") for name in only)

        with patch.object(fleet_cluster, "read", read):
            told, cluster = fleet_cluster.findings(Path("none.py"), hosts, dict.fromkeys(judged, GOOD))
        assert all("/etc/kubernetes/manifests/kube-scheduler.yaml" in each for each in asked) and cluster is None
        return told

    (item,) = found(reading, "cp-1")["cp-1"]
    assert (item.what, item.actual, item.desired) == ("kube-scheduler", "another", "asks the extender")
    assert item.finding_class is FindingClass.DRIFT and not item.by_person
    (item,) = found(None, "cp-1")["cp-1"]
    assert item.finding_class is FindingClass.NOT_KNOWN and item.is_negative and item.cause == "no connection"
    # A run of other hosts changes no scheduler.
    assert found(reading) == {}


_PODS = st.sampled_from([{}, {"nodeSelector": {PRESENT: "true"}}, {"nodeSelector": {"team": "a"}}])
_PLUGINS = st.builds(
    Plugin,
    method=st.sampled_from(["helm", "manifest", "gpushare", "gpu-operator"]),
    namespace=st.sampled_from([SPACE, "kube-system", "gpu-operator"]),
    name=st.sampled_from(["a", "b"]),
    release=st.sampled_from([None, "nvdp"]),
    ours=st.booleans(),
    pod=_PODS,
    program=st.sampled_from([others.PLUGIN, "driver", "MIG manager"]),
)


@given(
    data=st.sampled_from([*_METHODS, {}, {"device_plugin": {"method": "gpu-operator", "nfd": "present"}}]),
    plugins=st.lists(_PLUGINS, max_size=3),
    labels=st.dictionaries(st.sampled_from([PRESENT, "feature.node.kubernetes.io/pci-10de.present"]), st.just("true")),
)
def test_a_second_plugin_is_a_person_s(data: dict[str, Any], plugins: list[Plugin], labels: dict[str, str]) -> None:
    settings = _settings(data)
    alone = others.decide(settings, labels, plugins)
    different = _different(alone)
    assert not alone.steps and len(different) <= sum(each.takes(labels) for each in plugins)
    assert bool(alone.findings) == (settings.device_plugin.method != "none")
    taken = _different(gpu_operator.decide_found(settings, labels))
    assert bool(taken) == (settings.device_plugin.method == "gpu-operator" and len(labels.keys() - {PRESENT}) == 0)


@given(
    config=st.sampled_from([None, "all-1g.10gb"]),
    recorded=st.sampled_from([None, 5, 50]),
    starts=st.lists(st.sampled_from([None, 1.0, 5.0, 49.0, 51.0]), max_size=3),
)
def test_pods_older_than_mig_begin_anew_once(
    config: str | None, recorded: int | None, starts: list[float | None]
) -> None:
    sliced = {"mig": {"config": config}, "sharing": {"mig_strategy": "mixed"}} if config else {}
    settings = settings_from({"kubernetes": {"enabled": True}, **sliced})
    names = [f"set-{number}" for number in range(len(starts))]
    pods = tuple(
        Pod(f"{name}-x", {}, name, "gpu-1", True, "Running", None, begun)
        for name, begun in zip(names, starts, strict=True)
    )
    view, boot = View({}, (), pods), MigBoot(recorded_at=recorded)
    decision = decide_current(settings, "gpu-1", tuple(names), view, boot)
    different = _different(decision)
    stale = [each.name for each in pods if config and recorded and each.started and each.started <= recorded]
    assert bool(different) == bool(stale) and [*decision.findings] == [*decision.findings[: config is not None]]
    for step in decision.steps:
        assert [*(step.change or ())] == stale
        after = replace(view, pods=tuple(each for each in pods if each.name not in stale))
        assert not _different(decide_current(settings, "gpu-1", tuple(names), after, boot))


def test_in_another_cluster_all_is_behind_a_person_s_work() -> None:
    found = _drift(Kubectl(nodes={"gpu-9": node("gpu-9")}), _settings(_METHODS[2]))
    assert {"cluster", OWN_OBJECTS.what, "RuntimeClass", NODE.what} <= found.keys()
    assert all(item.by_person for item in found.values()) and SECOND_PLUGIN.what not in found
    assert unnamed(found["cluster"].cause, "kubernetes.context") == []


def test_a_label_of_somebody_else_s_is_told_as_a_person_s() -> None:
    theirs = {**node("gpu-1"), "metadata": {"name": "gpu-1", "labels": {SERVED_BY: "theirs"}}}
    found = _drift(Kubectl(nodes={"gpu-1": theirs}), _settings(_METHODS[1]))
    assert found[f"label {SERVED_BY}"].by_person and not found[f"label {CONFIG}"].by_person


@dataclass
class Forbidding(Kubectl):
    """SIMULATED: a cluster whose user may not read one kind."""

    kind: str = ""

    def __call__(self, command: Command) -> Output:
        """Refuse the question for that kind."""
        return Output(1, "", "Forbidden") if command.words[2] == self.kind else super().__call__(command)


@pytest.mark.parametrize(
    ("kind", "what", "finding_class", "is_negative"),
    [
        # No setting asks how much of a node's GPUs is taken.
        ("pods", "taken of the node's GPUs", FindingClass.NOT_KNOWN, False),
        ("daemonsets.apps", SECOND_PLUGIN.what, FindingClass.NOT_KNOWN, True),
        ("runtimeclasses.node.k8s.io", "RuntimeClass", FindingClass.NOT_KNOWN, True),
        ("nodes", "cluster", FindingClass.ERROR, True),
    ],
)
def test_what_the_cluster_does_not_tell_is_not_known_and_an_error_where_it_tells_nothing(
    kind: str, what: str, finding_class: FindingClass, is_negative: bool
) -> None:
    found = _drift(Forbidding(kind=kind), _settings(_METHODS[2]))
    assert (found[what].finding_class, found[what].is_negative) == (finding_class, is_negative)
    assert unnamed(found[what].cause, "Forbidden") == []


def test_drift_tells_of_a_second_plugin_that_the_run_refuses() -> None:
    other, settings = Plugin("helm", "theirs", "plugin", "theirs", False, {}), _settings(_METHODS[1])
    with patch.object(Cluster, "plugins", lambda _: (other,)):
        found = _drift(Kubectl(), settings)[SECOND_PLUGIN.what]
    assert found.by_person and unnamed(found.cause, "theirs/plugin") == []
    with patch.object(Cluster, "plugins", side_effect=ClusterError("Forbidden")):
        found = _drift(Kubectl(), settings)[SECOND_PLUGIN.what]
    assert (found.finding_class, found.cause, found.is_negative) == (FindingClass.NOT_KNOWN, "Forbidden", True)
    with (
        _run_on(Kubectl()) as host,
        patch.object(methods, "asked", lambda *_: (other,)),
        patch.object(methods, "nodes", lambda _: {"gpu-1": ClusterNode("gpu-1", {}, None, {}, False, True)}),
    ):
        (refusal,) = methods.alone._inner(settings=settings, everyone={"gpu-1": settings}, cluster_of=settings)
        assert refusal.function(None, host) is False
    assert unnamed(host.refusals[0], "theirs/plugin") == []
