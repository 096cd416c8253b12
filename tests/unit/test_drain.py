"""A node emptied and given back: whose cordon it is, what is asked of the cluster, and what holds a node up."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode import cordons
from gpunode.cli.plan import as_text
from gpunode.disturbance import Disturbance
from gpunode.drain import WAVE
from gpunode.drain.commands import drain_of
from gpunode.drain.cordon import ANNOTATION, Cordon, Note, lifted, parse_cordon, parse_cordons, taken
from gpunode.drain.judgement import judged
from gpunode.drain.pods import blocking, parse_budgets, parse_pods
from gpunode.drain.session import DrainError, Session
from gpunode.findings import FindingClass
from gpunode.helm.commands import Command
from gpunode.helm.session import Output
from gpunode.plan import plan
from gpunode.reading import ParseError
from gpunode.rollout import wave_run
from gpunode.settings import SettingsError, check_hosts, settings_from
from tests.unit.simulated_node import BUDGET, Cluster, pod
from tests.unit.test_verify import GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
NOW = "2026-01-31T12:00:00Z"


def session(cluster: Cluster, host: str = "gpu-1", **drain: object) -> Session:
    """Return the drain of a cluster's node, whose clock goes a minute with each look."""
    found = drain_of(host, settings_from({"kubernetes": {"enabled": True, "drain": drain}}))
    assert found is not None
    minutes = iter(range(0, 600_000, 60))
    return Session(found.commands, cluster, lambda: NOW, lambda: float(next(minutes)), lambda _: None)


def test_a_node_is_cordoned_and_noted_in_one_request_and_then_emptied() -> None:
    cluster = Cluster()
    assert session(cluster).empty("the node is to be rebooted")
    assert cluster.asked == ["get --raw", "patch node", "drain gpu-1", "patch node"]
    assert cluster.cordoned
    assert cluster.note == {
        "state": "drained", "reason": "the node is to be rebooted", "since": NOW, "cordon": "gpunode",
    }  # fmt: skip
    first = json.loads(cluster.words[1][-3])
    assert first["spec"] == {"unschedulable": True} and ANNOTATION in first["metadata"]["annotations"]


def test_a_controller_that_is_killed_in_the_drain_leaves_a_cordon_that_the_next_run_knows() -> None:
    cluster = Cluster()

    def killed() -> None:
        raise KeyboardInterrupt

    cluster.meanwhile["drain gpu-1"] = killed
    with pytest.raises(KeyboardInterrupt):
        session(cluster).empty("a reboot")
    assert cluster.note is not None and cluster.note["state"] == "draining"
    assert session(cluster).empty("another reboot")
    assert session(cluster).give_back("boot")
    assert not cluster.cordoned and cluster.note is None


def test_a_node_that_somebody_else_cordoned_is_drained_and_stays_cordoned() -> None:
    cluster = Cluster()
    cluster.by_hand(True)
    cluster.pods = [pod("web-1")]
    assert session(cluster).empty("a reboot")
    assert cluster.pods == [] and cluster.note is not None and cluster.note["cordon"] == "other"
    assert not session(cluster).give_back("boot")
    assert cluster.cordoned and cluster.note is None


def test_a_cordon_that_was_lifted_and_set_by_hand_is_no_longer_ours() -> None:
    cluster = Cluster()
    session(cluster).empty("a reboot")
    cluster.by_hand(False)
    cluster.by_hand(True)
    assert not session(cluster).give_back("boot")
    assert cluster.cordoned


def test_a_cordon_of_ours_that_somebody_lifted_leaves_a_note_that_goes() -> None:
    cluster = Cluster()
    session(cluster).empty("a reboot")
    cluster.by_hand(False)
    assert not session(cluster).give_back("boot")
    assert not cluster.cordoned and cluster.note is None


def test_a_cordon_that_came_between_the_look_and_the_request_is_theirs() -> None:
    cluster = Cluster()
    cluster.meanwhile["patch node"] = lambda: cluster.by_hand(True)
    session(cluster).empty("a reboot")
    assert cluster.note is not None and cluster.note["cordon"] == "other"


def test_a_node_that_others_change_all_the_time_is_left_to_them() -> None:
    cluster = Cluster()

    def change() -> None:
        cluster.patch({}, "kubelet")
        cluster.meanwhile["patch node"] = change

    cluster.meanwhile["patch node"] = change
    with pytest.raises(DrainError, match="changed by others"):
        session(cluster).empty("a reboot")
    assert not cluster.cordoned


def test_a_drain_that_a_budget_blocks_ends_in_a_visible_state_that_names_pod_and_budget() -> None:
    cluster = Cluster()
    cluster.pods, cluster.budgets = [pod("web-1")], [BUDGET]
    with pytest.raises(DrainError) as raised:
        session(cluster, timeout=30).empty("a reboot")
    said = str(raised.value)
    assert "drain blocked" in said and "shop/web-1: the disruption budget web allows no disruption now" in said
    assert cluster.cordoned and cluster.note is not None
    assert cluster.note["state"] == "drain blocked" and "budget web" in cluster.note["message"]
    # It goes on once there is room.
    cluster.budgets = []
    assert session(cluster).empty("a reboot")
    assert cluster.note["state"] == "drained" and "message" not in cluster.note


def test_what_failed_is_noted_unless_it_is_the_drain_itself() -> None:
    cluster = Cluster()
    session(cluster).empty("a reboot")
    session(cluster).failed("this failed on it: Reboot")
    assert cluster.note is not None
    assert (cluster.note["state"], cluster.note["message"]) == ("failed", "this failed on it: Reboot")
    cluster.pods, cluster.budgets = [pod("web-1")], [BUDGET]
    with pytest.raises(DrainError):
        session(cluster).empty("a reboot")
    session(cluster).failed("this failed on it: Reboot")
    assert cluster.note["state"] == "drain blocked"


@pytest.mark.parametrize(
    ("ready", "kubelet", "back"),
    [("True", "boot", True), ("True", "", True), ("True", "the boot of before", False), ("Unknown", "boot", False)],
)
def test_a_node_takes_pods_again_once_its_kubelet_is_ready_in_the_boot_that_runs(
    ready: str, kubelet: str, back: bool
) -> None:
    cluster = Cluster()
    session(cluster).empty("a reboot")
    cluster.node["status"] = {"conditions": [{"type": "Ready", "status": ready}], "nodeInfo": {"bootID": kubelet}}
    if back:
        assert session(cluster).give_back("boot") and not cluster.cordoned
        return
    with pytest.raises(DrainError, match="not Ready in the cluster after 300 s"):
        session(cluster).give_back("boot")
    assert cluster.cordoned and cluster.note is not None and cluster.note["state"] == "not ready"


def test_a_node_that_comes_back_late_is_waited_for() -> None:
    cluster = Cluster()
    session(cluster).empty("a reboot")
    cluster.node["status"]["conditions"] = []
    late = Session(
        session(cluster).commands, cluster, lambda: NOW, lambda: 0.0,
        lambda _: cluster.node["status"].update(conditions=[{"type": "Ready", "status": "True"}]),
    )  # fmt: skip
    assert late.give_back("boot") and not cluster.cordoned


def test_a_host_that_is_no_node_of_the_cluster_is_not_drained() -> None:
    cluster = Cluster("other")
    assert not session(cluster).empty("a reboot")
    assert not session(cluster).give_back("boot")
    assert set(cluster.asked) == {"get --raw"}


def test_a_cluster_that_does_not_answer_is_none_without_the_node() -> None:
    cluster = Cluster()
    cluster.silent = True
    with pytest.raises(DrainError, match=r"refused.*\n.*kubernetes\.kubeconfig"):
        session(cluster).empty("a reboot")


def test_kubectl_is_told_what_the_settings_say_and_never_to_pass_over_a_budget() -> None:
    cluster = Cluster()
    session(cluster, grace=20, timeout=90, delete_emptydir_data=True, force=True).empty("a reboot")
    drain = next(words for words in cluster.words if words[1] == "drain")
    assert drain == (
        "kubectl", "drain", "gpu-1", "--ignore-daemonsets", "--timeout", "90s", "--grace-period", "20",
        "--delete-emptydir-data", "--force",
    )  # fmt: skip
    session(cluster).empty("a reboot")
    assert cluster.words[-2] == ("kubectl", "drain", "gpu-1", "--ignore-daemonsets", "--timeout", "600s")


@pytest.mark.parametrize(
    ("kubernetes", "key"),
    [
        ({"enabled": True, "drain": {"timeout": 30, "grace": 30}}, "kubernetes.drain.grace = 30"),
        ({"enabled": True, "drain": {"enabled": False, "force": True}}, "kubernetes.drain.force = True"),
        ({"enabled": True, "drain": {"timeout": 0}}, "kubernetes.drain.timeout = 0"),
        ({"enabled": True, "drain": {"timeouts": 9}}, "kubernetes.drain.timeouts = 9"),
    ],
)
def test_a_drain_that_contradicts_itself_is_refused_by_name(kubernetes: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError, match=key):
        settings_from({"kubernetes": kubernetes})


@pytest.mark.parametrize("kubernetes", [{}, {"enabled": False}, {"enabled": True, "drain": {"enabled": False}}])
def test_a_host_without_cluster_or_without_a_drain_has_none(kubernetes: dict[str, Any]) -> None:
    assert drain_of("gpu-1", settings_from({"kubernetes": kubernetes})) is None


def test_each_node_may_have_a_drain_of_its_own() -> None:
    hosts = {f"gpu-{number}": {"kubernetes": {"enabled": True, "drain": {"timeout": 60 * number}}} for number in (1, 2)}
    assert len(check_hosts(hosts)) == 2


def _pods(*items: dict[str, Any]) -> Any:
    return parse_pods(json.dumps({"items": items}))


def _why(item: dict[str, Any], *budgets: dict[str, Any], force: bool = False, emptydir: bool = False) -> str:
    found = blocking(_pods(item), parse_budgets(json.dumps({"items": budgets})), force=force, emptydir=emptydir)
    return "".join(found)


@pytest.mark.parametrize(
    "item",
    [
        pod("a", metadata={"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}),
        pod("a", metadata={"annotations": {"kubernetes.io/config.mirror": "x"}}),
        pod("a", status={"phase": "Succeeded"}),
    ],
)
def test_a_pod_that_belongs_to_the_node_or_has_ended_blocks_nothing(item: dict[str, Any]) -> None:
    assert _why(item, BUDGET) == ""


def test_why_a_pod_is_still_there_names_the_setting_or_the_budget() -> None:
    alone = pod("a", metadata={"ownerReferences": []})
    assert "kubernetes.drain.force" in _why(alone) and "force" not in _why(alone, force=True)
    holding = pod("a", spec={"volumes": [{"name": "cache", "emptyDir": {}}]})
    assert "delete_emptydir_data" in _why(holding) and "emptydir" not in _why(holding, emptydir=True).lower()
    assert "has not ended" in _why(pod("a", metadata={"deletionTimestamp": NOW}), BUDGET)
    assert "several disruption budgets" in _why(
        pod("a"), BUDGET, {**BUDGET, "metadata": {"namespace": "shop", "name": "b"}}
    )
    assert _why(pod("a")) == "shop/a: it is still there"


def test_of_many_pods_the_first_are_named_and_the_others_counted() -> None:
    found = blocking(_pods(*(pod(f"web-{number}") for number in range(11))), (), force=False, emptydir=False)
    assert len(found) == 9 and found[-1] == "3 pods more"


@pytest.mark.parametrize(
    ("selector", "version", "covers"),
    [
        ({"matchLabels": {"app": "web"}}, "policy/v1", True),
        ({"matchLabels": {"app": "db"}}, "policy/v1", False),
        ({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "db"]}]}, "policy/v1", True),
        ({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}, "policy/v1", False),
        ({"matchExpressions": [{"key": "app", "operator": "Exists"}]}, "policy/v1", True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, "policy/v1", False),
        ({}, "policy/v1", True),
        ({}, "policy/v1beta1", False),
        (None, "policy/v1", False),
    ],
)
def test_a_budget_is_for_the_pods_that_its_selector_has(selector: Any, version: str, covers: bool) -> None:
    budget = {**BUDGET, "apiVersion": version, "spec": {"selector": selector}}
    assert ("budget web" in _why(pod("a"), budget)) is covers
    assert "budget web" not in _why(pod("a", metadata={"namespace": "other"}), budget)


def test_a_person_who_writes_into_the_annotation_makes_no_cordon_ours() -> None:
    for text in ("hands off", "[1]", "{", '{"cordon": "me"}'):
        cluster = Cluster()
        cluster.node["metadata"]["annotations"][ANNOTATION] = text
        cluster.by_hand(True)
        found = parse_cordon(json.dumps(cluster.node))
        assert not found.is_ours


def test_an_answer_that_is_no_node_is_refused_as_that() -> None:
    for text in ("", "[]", "{}", '{"metadata": {}}', "null"):
        with pytest.raises(ParseError):
            parse_cordon(text)
        with pytest.raises(ParseError):
            parse_cordons(text)
        with pytest.raises(ParseError):
            parse_pods(text)
        with pytest.raises(ParseError):
            parse_budgets(text)


notes = st.builds(
    Note, state=st.sampled_from(["draining", "drained", "drain blocked"]), reason=st.text(), since=st.just(NOW),
    cordon=st.sampled_from(["gpunode", "other"]), message=st.text(),
)  # fmt: skip
held = st.builds(
    Cordon, name=st.just("gpu-1"), version=st.just("7"), unschedulable=st.booleans(), note=st.none() | notes,
    set_by_others=st.booleans(), ready=st.booleans(), boot_id=st.sampled_from(["", "a"]),
)  # fmt: skip


@given(held)
def test_nothing_but_our_own_cordon_is_ever_lifted(cordon: Cordon) -> None:
    patch = lifted(cordon)
    lifts = patch is not None and "spec" in patch
    assert lifts == cordon.is_ours
    assert not (cordon.unschedulable and (cordon.note is None or cordon.set_by_others) and lifts)
    # Also where an API server tells nobody who set what.
    assert not lifts or (cordon.note is not None and cordon.note.cordon == "gpunode")


@given(held, st.text())
def test_a_cordon_is_taken_only_where_nobody_else_has_one_and_always_with_its_note(cordon: Cordon, reason: str) -> None:
    note, patch = taken(cordon, reason, NOW)
    theirs = cordon.unschedulable and not cordon.is_ours
    assert ("spec" in patch) is not theirs and (note.cordon == "gpunode") is not theirs
    assert patch["metadata"]["resourceVersion"] == cordon.version
    assert json.loads(patch["metadata"]["annotations"][ANNOTATION])["cordon"] == note.cordon


@given(notes)
def test_a_note_is_read_as_it_was_written(note: Note) -> None:
    cluster = Cluster()
    short = replace(note, reason=note.reason[:2000], message=note.message[:2000])
    cluster.node["metadata"]["annotations"][ANNOTATION] = note.text
    assert parse_cordon(json.dumps(cluster.node)).note == short


def _node(cluster: Cluster) -> Cordon:
    return parse_cordon(json.dumps(cluster.node))


def test_drift_tells_of_a_node_that_gpunode_holds_back_and_of_no_other_cordon() -> None:
    cluster = Cluster()
    assert judged(_node(cluster)).finding_class is FindingClass.OK
    cluster.by_hand(True)
    assert judged(_node(cluster)).finding_class is FindingClass.OK
    cluster.by_hand(False)
    cluster.pods, cluster.budgets = [pod("web-1")], [BUDGET]
    with pytest.raises(DrainError):
        session(cluster).empty("a reboot")
    found = judged(_node(cluster))
    assert found.finding_class is FindingClass.DRIFT
    assert found.found == f"drain blocked since {NOW}, for: a reboot"
    assert "budget web" in (found.cause or "") and "run deploys/gpu_node.py" in (found.remedy or "")


def _inventory(**kubernetes: object) -> dict[str, Any]:
    return check_hosts({name: {"kubernetes": {"enabled": True, **kubernetes}} for name in ("gpu-1", "gpu-2", "gpu-3")})


def test_drift_asks_the_cluster_once_for_all_nodes_and_not_at_all_without_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = [Cluster("gpu-1"), Cluster("gpu-2")]
    session(clusters[1], "gpu-2").empty("a reboot")
    asked: list[Command] = []

    def here(command: Command) -> Output:
        asked.append(command)
        return Output(0, json.dumps({"items": [each.node for each in clusters]}), "")

    monkeypatch.setattr(cordons, "reached", lambda *_: nullcontext(here))
    found = cordons.findings(Path("x"), _inventory())
    assert {name: item.finding_class for name, item in found.items()} == {
        "gpu-1": FindingClass.OK, "gpu-2": FindingClass.DRIFT,
    }  # fmt: skip
    assert len(asked) == 1
    assert cordons.findings(Path("x"), _inventory(drain={"enabled": False})) == {} and len(asked) == 1


@pytest.mark.parametrize("answer", [Output(1, "", "refused"), Output(0, "<html>", "")])
def test_drift_says_that_it_does_not_know_where_the_cluster_does_not_answer(
    answer: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cordons, "reached", lambda *_: nullcontext(lambda _: answer))
    found = cordons.findings(Path("x"), _inventory())
    assert {item.finding_class for item in found.values()} == {FindingClass.ERROR} and len(found) == 3


@pytest.mark.parametrize(("enabled", "drained"), [(True, True), (False, False)])
def test_a_plan_says_before_which_steps_the_node_is_drained(enabled: bool, drained: bool) -> None:
    asked = {"driver": {"branch": "580"}, "disruption": {"allow": "reboot"}, "kubernetes": {"enabled": enabled}}
    node = replace(GOOD, driver=replace(GOOD.driver, loaded_version="580.82.07"))
    found = plan(settings_from(asked), node)
    assert found.drains is drained
    assert all(step.drains is (drained and step.disturbs > Disturbance.nothing) for step in found.steps)
    assert ("; drains the node" in as_text({"gpu-1": found})) is drained
    waits = plan(settings_from({**asked, "disruption": {"allow": "restart"}}), node)
    assert any(step.pending for step in waits.steps) and not waits.drains


def test_a_wave_tells_its_run_how_many_nodes_it_has(tmp_path: Path) -> None:
    script = f"import os; print(os.environ['{WAVE}'])"
    with (tmp_path / "printed").open("wb") as printed, (tmp_path / "lock").open("wb") as lock:
        assert wave_run._code([sys.executable, "-c", script], printed, printed, lock.fileno(), 3) == 0
    assert (tmp_path / "printed").read_text() == "3\n"
