"""Which pods hold a node up that is to be emptied, and by which disruption budget."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpunode.kubernetes.drain.pods import blocking, parse_budgets, parse_pods
from tests.support.simulated_node import BUDGET, NOW, pod

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


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
