"""Which GPU a pod that adds vectors gets in the lab, and that it lets it go. SIMULATED: the node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpunode.lab import nodes
from gpunode.lab.cluster import devices, pods
from gpunode.lab.cluster.devices import Gpu
from gpunode.lab.cluster.vector_adds import VectorAdds, chosen, specification
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node
from gpunode.system.gpu_users import Asked, asked

pytestmark = pytest.mark.pure

TWO = (Gpu("GPU-a", False), Gpu("GPU-b", False))
SLICED = (
    Gpu("GPU-a", True, (("1g.10gb", "MIG-1"), ("1g.10gb", "MIG-2"), ("1g.20gb+me", "MIG-3"))),
    Gpu("GPU-b", False),
)
PASSED = pods.Outcome("Succeeded", False, "SIMULATED: x\nTest PASSED\nDone\n")


def _pod(uid: str, resource: str = "nvidia.com/gpu.shared") -> dict[str, Any]:
    container = {"name": "vector-add", "image": "x:vectoradd", "resources": {"limits": {resource: 1}}}
    return {"metadata": {"uid": uid, "name": f"pod-{uid}", "namespace": "team"}, "spec": {"containers": [container]}}


@pytest.mark.parametrize(
    ("gpus", "resource", "taken", "place"),
    [
        (TWO, "nvidia.com/gpu.shared", {}, (0, "GPU-a")),
        (TWO, "nvidia.com/gpu.shared", {"GPU-a": 1}, (1, "GPU-b")),
        (TWO, "nvidia.com/gpu", {"GPU-a": 1, "GPU-b": 1}, (0, "GPU-a")),
        # gpushare's scheduler fills one after the other.
        (TWO, "aliyun.com/gpu-mem", {"GPU-a": 1}, (0, "GPU-a")),
        (SLICED, "nvidia.com/mig-1g.10gb", {"MIG-1": 1}, (0, "MIG-2")),
        (SLICED, "nvidia.com/mig-1g.20gb.me", {}, (0, "MIG-3")),
        (SLICED, "nvidia.com/gpu", {}, (1, "GPU-b")),
        (SLICED[:1], "nvidia.com/gpu", {}, (0, "MIG-1")),
    ],
)
def test_replicas_are_spread_over_gpus_and_gpushare_fills_them(
    gpus: tuple[Gpu, ...], resource: str, taken: dict[str, int], place: tuple[int, str]
) -> None:
    assert chosen(gpus, resource, taken) == place


def test_what_containerd_would_keep_tells_the_gpu() -> None:
    found = specification(_pod("1"), 1, "GPU-b")
    given = asked(found, found["annotations"], Asked({"0": "GPU-a", "1": "GPU-b"}, {"1": "GPU-b"}))
    assert (given.names, given.gpus) == (("GPU-b",), ("GPU-b",))


def test_a_pod_runs_for_a_while_with_its_gpu_and_lets_it_go(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(devices, "asked", lambda _: TWO)
    monkeypatch.setattr(nodes, "run", lambda _, text, timeout: told.append(text))
    now = iter([0.0, 0.0, 1.0, 1.0, 9.0, 9.0, 9.0])
    own, node = VectorAdds(clock=lambda: next(now)), SimpleNamespace(name="gpu-1")
    assert isinstance(own.outcome(_as_node(node), _pod("1"), PASSED), pods.Outcome)
    second = own.outcome(_as_node(node), _pod("2"), PASSED)
    assert (second.phase, second.ready, "PASSED" in second.log) == ("Running", True, False)
    assert ["gpunode-lab-hold 0 " in told[0], "gpunode-lab-hold 1 " in told[1]] == [True, True]
    assert own.outcome(_as_node(node), _pod("1"), PASSED) == PASSED
    assert "systemctl stop" in told[2] and list(own.running) == ["2"]
    own.end("2")
    own.end("2")
    assert len(told) == 4
    # It has had its time.
    assert own.outcome(_as_node(node), _pod("1"), PASSED) == PASSED and len(told) == 4


def test_a_node_that_goes_down_meanwhile_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object, **__: object) -> None:
        raise LabError("no such container")

    monkeypatch.setattr(devices, "asked", lambda _: TWO)
    monkeypatch.setattr(nodes, "run", down)
    assert VectorAdds().outcome(_as_node(SimpleNamespace(name="gpu-1")), _pod("1"), PASSED) == PASSED


def _as_node(simulated: Any) -> Node:
    return simulated  # type: ignore[no-any-return]
