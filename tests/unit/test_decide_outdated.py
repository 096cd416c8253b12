"""Which of the plugin's pods begin anew after a release that leaves them as they are; pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.decide_pods import decide_outdated, restarts_daemon, still_coming
from gpunode.kubernetes.device_plugin.desired_cluster import chart_values, is_node_by_node, node_by_node
from gpunode.kubernetes.device_plugin.view import View, parse_objects, parse_revisions
from gpunode.kubernetes.helm.commands import Commands, Helm
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, LabelChange
from gpunode.settings import Settings, settings_from
from gpunode.settings.sharing import SharingSettings

pytestmark = pytest.mark.pure
PLUGIN, DAEMON = "nvdp-nvidia-device-plugin", "nvdp-nvidia-device-plugin-mps-control-daemon"
SHARED: dict[str, Any] = {"strategy": "mps", "replicas": 4}


def settings(**more: Any) -> Settings:
    return settings_from({"kubernetes": {"enabled": True}, "sharing": SHARED, **more})


def daemon_set(
    name: str, generation: int = 2, updated: int | None = None, strategy: str = "OnDelete"
) -> dict[str, Any]:
    """Return a DaemonSet of one pod; `updated`: of how many its controller says that they are current."""
    notes = {
        "meta.helm.sh/release-name": "nvdp",
        "deprecated.daemonset.template.generation": str(generation),
    }
    status = {} if updated is None else {
        "observedGeneration": generation, "desiredNumberScheduled": 1, "updatedNumberScheduled": updated,
    }  # fmt: skip
    return {
        "kind": "DaemonSet",
        "metadata": {"name": name, "annotations": notes, "generation": generation},
        "spec": {"updateStrategy": {"type": strategy}},
        "status": status,
    }


def pod(name: str, of: str, generation: int, revision: str = "", ready: bool = True, leaves: bool = False) -> Any:
    labels = {
        "pod-template-generation": str(generation),
        **({"controller-revision-hash": revision} if revision else {}),
    }
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [{"kind": "DaemonSet", "name": of}],
            **({"deletionTimestamp": "2026-11-25T12:00:00Z"} if leaves else {}),
        },
        "spec": {"nodeName": "gpu-1"},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


NODE = ClusterNode("gpu-1", {CONFIG: "mps-4"}, None, {}, False, True)


def view(*items: Any) -> View:
    return View({"gpu-1": NODE}, *parse_objects(json.dumps({"items": list(items)})))


def anew(found: View, label: LabelChange | None = None) -> tuple[str, ...]:
    """Return the pods that begin anew, and hold that drift names those of an earlier release and no others."""
    decision = decide_outdated(settings(), NODE, found, label)
    names = next((step.change or () for step in decision.steps), ())
    wrong = bad(*decision.findings)
    assert (", ".join(names) == wrong[0].actual if label is None else True) if wrong else label is not None or not names
    return names


@given(
    generations=st.lists(st.integers(1, 3), min_size=2, max_size=2),
    strategy=st.sampled_from(["OnDelete", "RollingUpdate"]),
    updated=st.sampled_from([None, 0, 1]),
)
def test_pods_of_another_template_begin_anew_where_nobody_else_ends_them_unless_their_controller_knows_better(
    generations: list[int], strategy: str, updated: int | None
) -> None:
    named = zip((PLUGIN, DAEMON), generations, strict=True)
    made = [pod(f"pod-{number}", name, each) for number, (name, each) in enumerate(named)]
    found = view(daemon_set(PLUGIN, 2, updated, strategy), daemon_set(DAEMON, 2, updated, strategy), *made)
    old = tuple(f"pod-{number}" for number, each in enumerate(generations) if each != 2)
    assert anew(found) == (old if strategy == "OnDelete" and updated != 1 else ())


def test_a_template_that_came_back_is_known_by_its_name_and_not_by_its_number() -> None:
    found = view(daemon_set(PLUGIN, 3, 0), pod("kept", PLUGIN, 1, "aaa"), pod("broken", PLUGIN, 2, "bbb"))
    assert anew(found) == ("kept", "broken") and found.has_outdated
    owner = [{"kind": "DaemonSet", "name": PLUGIN}]
    revisions = [
        {"revision": number, "metadata": {"labels": {"controller-revision-hash": name}, "ownerReferences": owner}}
        for number, name in ((3, "aaa"), (2, "bbb"))
    ]
    known = found.with_revisions(parse_revisions(json.dumps({"items": revisions})))
    assert anew(known) == ("broken",)
    # A controller that has not looked yet has no revision of the new template.
    late = view(daemon_set(PLUGIN, 3), pod("kept", PLUGIN, 1, "aaa")).with_revisions({PLUGIN: "aaa"})
    assert anew(late) == ("kept",)


def test_another_configuration_has_all_pods_of_its_node_begin_anew_and_one_that_leaves_is_none() -> None:
    found = view(
        daemon_set(PLUGIN, 2, 1), daemon_set(DAEMON, 2, 1), pod("plugin", PLUGIN, 2), pod("daemon", DAEMON, 2),
        pod("gone", DAEMON, 1, leaves=True),
    )  # fmt: skip
    other = LabelChange({CONFIG: "mps-8"}, (), None, {}, False)
    assert anew(found, other) == ("plugin", "daemon") and anew(found) == ()
    assert anew(found, LabelChange({"nvidia.com/gpu.present": "true"}, (), None, {}, False)) == ()
    assert restarts_daemon(("plugin", "daemon"), found) and not restarts_daemon(("plugin",), found)


def test_pods_are_back_when_others_are_ready_in_their_place() -> None:
    sets = (daemon_set(PLUGIN), daemon_set(DAEMON))
    for items, reason in (
        ((pod("a", PLUGIN, 1), pod("b", DAEMON, 2)), "a has not ended"),
        ((pod("b", DAEMON, 2),), f"{PLUGIN} has no pod"),
        ((pod("c", PLUGIN, 2), pod("b", DAEMON, 2, ready=False)), "b is Running, not ready"),
        ((pod("c", PLUGIN, 2), pod("b", DAEMON, 2)), None),
    ):
        said = next(still_coming(settings(), "gpu-1", view(*sets, *items), ("a",)), None)
        assert (said is None) if reason is None else (reason in str(said))
    # No daemon is waited for where none is asked for.
    alone = settings(sharing={"strategy": "none"})
    assert not list(still_coming(alone, "gpu-1", view(*sets, pod("c", PLUGIN, 2)), ("a",)))


def test_a_node_that_shares_by_mps_no_more_is_back_when_feature_discovery_says_so() -> None:
    """Else the release is kept as for a node with a daemon, and the next run has something to change."""
    sets, back = (daemon_set(PLUGIN), daemon_set(DAEMON)), pod("c", PLUGIN, 2)

    def said(label: str, **plugin: Any) -> str | None:
        of_node = replace(NODE, labels={**NODE.labels, MPS_CAPABLE: label})
        found = replace(view(*sets, back), nodes={"gpu-1": of_node})
        return next(still_coming(settings(sharing={}, device_plugin=plugin), "gpu-1", found, ()), None)

    assert MPS_CAPABLE in str(said("true", gfd=True, nfd="present")) and said("false", gfd=True, nfd="present") is None
    # Without it the label is gpunode's, or a person's; and of a person's own entry nobody knows what it shares by.
    assert said("true") is None
    assert said("true", gfd=True, nfd="present", config_name="ours") is None


@given(st.one_of(st.text(), st.recursive(st.none() | st.text(), lambda x: st.lists(x)).map(json.dumps)))
def test_any_text_is_parsed_or_is_no_list_of_revisions(text: str) -> None:
    try:
        assert parse_revisions(text) == {}
    except ParseError as error:
        assert "ControllerRevisions" in str(error)


def _values(*sharings: dict[str, Any], **plugin: Any) -> dict[str, Any]:
    made = settings(device_plugin=plugin).device_plugin
    return chart_values(made, [SharingSettings.model_validate(each) for each in sharings], False)


def test_a_release_with_mps_leaves_its_pods_and_an_entry_more_changes_no_template() -> None:
    one, two = _values(SHARED), _values(SHARED, {"strategy": "mps", "replicas": 8})
    assert is_node_by_node(one) and one["podAnnotations"] == two["podAnnotations"] and one["config"] != two["config"]
    assert not is_node_by_node(_values({"strategy": "time-slicing", "replicas": 4}))
    # The last daemon may run on when nobody asks for it any more.
    assert is_node_by_node(node_by_node(_values({})))


def test_a_person_s_own_strategy_and_digest_stay() -> None:
    values = {"updateStrategy": {"type": "RollingUpdate"}}
    assert _values(SHARED, values=values)["updateStrategy"] == {"type": "RollingUpdate"}
    own = {"podAnnotations": {"checksum/config": "mine", "more": "x"}}
    assert _values(SHARED, values=own)["podAnnotations"] == own["podAnnotations"]
    assert "podAnnotations" not in node_by_node({"config": {"name": "ours"}})


@pytest.mark.parametrize(("version", "word"), [("v3.19.0", "--wait"), ("v4.2.3", "--wait=legacy")])
def test_helm_4_does_not_wait_for_pods_that_nobody_begins_anew(version: str, word: str) -> None:
    made = settings()
    commands = Commands(Helm("helm", version.removeprefix("v")), made.kubernetes, made.device_plugin, made.proxy)
    stays, rolls = _values(SHARED), _values({})
    assert word in commands.upgrade(stays).words and word in commands.rollback(1, stays).words
    assert "--wait" in commands.upgrade(rolls).words and "--wait" in commands.rollback(1, rolls).words
