"""What the objects of a cluster come to for one node, for tests/cases."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.state import Mig
from gpunode.kubernetes.device_plugin.verdict import comes_by_itself, judge_node
from gpunode.kubernetes.device_plugin.view import Pod, View, parse_objects
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import CONFIG, PRESENT
from gpunode.settings import settings_from
from tests.support.outcomes import _value
from tests.support.verify_cluster import TWO, _pod, _set

NODE = ClusterNode(
    "gpu-1",
    {CONFIG: "time-slicing-5-renamed", PRESENT: "true"},
    None,
    {"nvidia.com/gpu.shared": "10", "nvidia.com/gpu": "0", "cpu": "64"},
    unschedulable=False,
    ready=True,
)
POD = Pod("plugin-x", {}, "plugin", "gpu-1", True, "Running", None)


def _view(objects: Sequence[dict[str, Any]], nodes: Sequence[ClusterNode] = (), exporter: View | None = None) -> View:
    made = [_set(**each["set"]) if "set" in each else _pod(**each["pod"]) for each in objects]
    return View({each.name: each for each in nodes}, *parse_objects(json.dumps({"items": made})), exporter)


def _waits(item: Finding) -> str:
    return "waits" if comes_by_itself(item) else "stays"


def judged(
    data: dict[str, Any],
    node: ClusterNode = NODE,
    objects: Sequence[dict[str, Any]] = ({"set": {}}, {"pod": {}}),
    exporter: Sequence[dict[str, Any]] = (),
    mig: Mig = TWO,
    name: str = "gpu-1",
) -> dict[str, Any]:
    """Return what is as desired, and what differs: class, actual, desired, if it comes by itself, and cause."""
    settings = settings_from({"kubernetes": {"enabled": True}, **data})
    found = judge_node(settings, name, None, mig, _view(objects, [node], _view(exporter)))
    wrong = [each for each in found if each.finding_class is not FindingClass.OK]
    assert all(each.remedy for each in wrong)
    return {
        "good": [each.what for each in found if each not in wrong],
        "differs": [
            [each.what, each.finding_class.value, each.actual, each.desired, _waits(each), _value(each.cause)]
            for each in wrong
        ],
    }
