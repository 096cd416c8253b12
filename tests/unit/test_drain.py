"""A node emptied and given back: what is asked of the cluster, and what becomes of its cordon."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpunode.kubernetes.drain.commands import drain_of
from gpunode.kubernetes.drain.session import DrainError, Session
from gpunode.kubernetes.nodes.cluster_nodes import ANNOTATION
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.simulated_node import BUDGET, NOW, Cluster, pod, session

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


def test_a_node_is_cordoned_and_noted_in_one_request_and_then_emptied() -> None:
    cluster = Cluster()
    assert session(cluster).empty("a reboot")
    assert cluster.asked == ["get --raw", "patch node", "drain gpu-1", "patch node"]
    assert cluster.cordoned
    assert cluster.note == {
        "state": "drained", "reason": "a reboot", "since": NOW, "cordon": "gpunode",
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


@pytest.mark.parametrize(
    ("before", "after", "noted", "back"),
    [([], [], "gpunode", True), ([True], [], "other", False), ([], [False, True], "gpunode", False),
     ([], [False], "gpunode", False)],
    ids=["ours", "theirs", "set anew by hand", "lifted by hand"],
)  # fmt: skip
def test_a_cordon_is_lifted_where_nobody_else_set_it(
    before: list[bool], after: list[bool], noted: str, back: bool
) -> None:
    cluster = Cluster()
    cluster.pods = [pod("web-1")]
    for each in before:
        cluster.by_hand(each)
    assert session(cluster).empty("a reboot") and cluster.pods == []
    assert cluster.note is not None and cluster.note["cordon"] == noted
    for each in after:
        cluster.by_hand(each)
    assert session(cluster).give_back("boot") == back
    assert cluster.cordoned == [False, *before, *after][-1] and cluster.note is None


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
    assert unnamed(str(raised.value), "drain blocked", "shop/web-1", "budget web") == []
    assert cluster.cordoned and cluster.note is not None
    assert cluster.note["state"] == "drain blocked"
    assert unnamed(cluster.note["message"], "shop/web-1", "budget web") == []
    # It goes on once there is room.
    cluster.budgets = []
    assert session(cluster).empty("a reboot")
    assert cluster.note["state"] == "drained" and "message" not in cluster.note


def alone(name: str, **metadata: Any) -> dict[str, Any]:
    """Return a pod of no controller's."""
    return pod(name, metadata={"ownerReferences": [], **metadata})


def test_pods_of_no_controller_that_end_already_are_waited_for_before_anything_is_evicted() -> None:
    """kubectl refuses the whole drain for them, at once."""
    cluster = Cluster()
    cluster.pods = [alone("job", deletionTimestamp=NOW), pod("web-1")]
    made, looks = session(cluster), iter(range(9))

    def sleep(_: float) -> None:
        if next(looks) == 2:
            cluster.pods = [pod("web-1")]

    assert replace(made, sleep=sleep).empty("a reboot")
    assert cluster.pods == [] and cluster.note is not None and cluster.note["state"] == "drained"
    assert [each for each in cluster.asked if each == "drain gpu-1"] == ["drain gpu-1"] * 2


def test_one_that_ended_while_kubectl_refused_it_is_no_obstacle() -> None:
    cluster = Cluster()
    cluster.pods = [alone("job", deletionTimestamp=NOW)]
    cluster.meanwhile["get pods"] = cluster.pods.clear
    assert session(cluster).empty("a reboot") and cluster.note is not None and cluster.note["state"] == "drained"


def test_one_that_does_not_end_in_time_or_that_nobody_told_to_end_blocks_the_drain() -> None:
    for each, reason, looks in (
        (alone("job", deletionTimestamp=NOW), "has not ended", 10),
        (alone("job"), "no controller", 1),
    ):
        cluster = Cluster()
        cluster.pods = [each, alone("other", deletionTimestamp=NOW)]
        with pytest.raises(DrainError, match=reason):
            session(cluster, timeout=600).empty("a reboot")
        # The last look is for the words.
        assert cluster.asked.count("get pods") == looks + 1 and cluster.asked.count("drain gpu-1") == 1
        assert len(cluster.pods) == 2 and cluster.note is not None and cluster.note["state"] == "drain blocked"


def test_what_failed_is_noted_unless_it_is_the_drain_itself() -> None:
    cluster = Cluster()
    session(cluster).empty("a reboot")
    session(cluster).failed("Reboot failed")
    assert cluster.note is not None
    assert (cluster.note["state"], cluster.note["message"]) == ("failed", "Reboot failed")
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
    with pytest.raises(DrainError, match="300 s"):
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
    with pytest.raises(DrainError, match=r"refused.*Remedy: .*kubernetes\.kubeconfig"):
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


@pytest.mark.parametrize("kubernetes", [{}, {"enabled": False}, {"enabled": True, "drain": {"enabled": False}}])
def test_a_host_without_cluster_or_without_a_drain_has_none(kubernetes: dict[str, Any]) -> None:
    assert drain_of("gpu-1", settings_from({"kubernetes": kubernetes})) is None
