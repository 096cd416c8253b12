"""What tests/real/test_charts.py holds for an API server's answer is one: with what is gone, and with what is added."""

from __future__ import annotations

from typing import Any

import pytest

from tests.real.charts import combinations
from tests.stored_object import stored

pytestmark = pytest.mark.pure


def test_an_empty_field_is_gone_and_an_empty_entry_of_a_persons_own_stays() -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": ""}},
        "spec": {
            "containers": [{"name": "c", "image": "d", "env": [{"name": "E", "value": ""}], "resources": {}}],
            "volumes": [{"name": "f", "emptyDir": {}}, {"name": "g", "hostPath": {"path": "/"}}],
            "nodeSelector": None, "tolerations": [],
        },
    }  # fmt: skip
    spec = stored(pod)["spec"]
    assert spec["containers"][0]["env"] == [{"name": "E"}]
    assert spec["containers"][0]["terminationMessagePolicy"] == "File" and spec["dnsPolicy"] == "ClusterFirst"
    assert spec["volumes"] == [{"name": "f", "emptyDir": {}}, {"name": "g", "hostPath": {"type": "", "path": "/"}}]
    assert "nodeSelector" not in spec and "tolerations" not in spec
    assert stored(pod)["metadata"]["labels"] == {"b": ""} and stored(pod)["metadata"]["uid"]


def test_of_a_custom_resource_all_is_kept() -> None:
    policy = {"apiVersion": "nvidia.com/v1", "kind": "ClusterPolicy", "metadata": {"name": "a"}, "spec": {"b": ""}}
    assert stored(policy)["spec"] == {"b": ""}


def test_every_two_options_have_each_of_their_values_together() -> None:
    options: dict[str, list[Any]] = {"a": [1, 2, 3], "b": ["x", "y"], "c": [True, False]}
    chosen = list(combinations(options, 2))
    for one, other in (("a", "b"), ("a", "c"), ("b", "c")):
        pairs = {(each[one], each[other]) for each in chosen}
        assert len(pairs) == len(options[one]) * len(options[other])
    assert len(chosen) < 12 and chosen == list(combinations(options, 2))
