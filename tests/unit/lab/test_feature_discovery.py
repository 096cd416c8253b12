"""What the lab's SIMULATED GPU feature discovery writes, and when; pure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cluster import devices
from gpunode.lab.cluster.devices import Described, Gpu
from gpunode.lab.cluster.feature_discovery import NodeDiscovery
from gpunode.lab.cluster.logs import Logs
from gpunode.lab.cluster.stand_in import FORGOTTEN, StandIn
from gpunode.lab.nodes import Node
from tests.support.feature_labels import MODEL

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

H100 = Described(MODEL, 81559, "580.95.05", "13.0", True)
WHOLE: tuple[Gpu, ...] = (Gpu("GPU-0", False), Gpu("GPU-1", False))
NODE = Node("gpu-1", "gpunode-test-gpu-1", "10.0.0.2", "h100-80gb", 2, "test")


class _Api:
    def __init__(self) -> None:
        self.told: list[Any] = []

    def patch(self, path: str, patch: Any) -> None:
        self.told.append(patch["metadata"]["labels"])


def _pod(uid: str) -> dict[str, Any]:
    owner = {"kind": "DaemonSet", "name": "nvdp-nvidia-device-plugin-gpu-feature-discovery"}
    container = {"name": "gfd", "image": "x:1"}
    return {
        "metadata": {"name": "gfd-x", "namespace": "n", "uid": uid, "ownerReferences": [owner]},
        "spec": {"containers": [container], "nodeName": "gpu-1"},
        "status": {},
    }


def test_it_looks_when_its_pod_is_a_new_one_and_its_labels_go_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "asked", lambda node: WHOLE)
    monkeypatch.setattr(devices, "described", lambda node: H100)
    api: Any = _Api()
    own = NodeDiscovery(NODE, api)
    for uid in ("a", "a", "b"):
        outcome = own.look([_pod(uid)], None, {})
        assert outcome is not None and outcome.ready and "SIMULATED" in outcome.log
    assert len(api.told) == 2 and api.told[0]["nvidia.com/gpu.count"] == "2"
    assert own.look([], None, {}) is None
    assert set(api.told[2].values()) == {None}


def test_a_kubelet_that_forgot_a_pod_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = "nvdp-nvidia-device-plugin"
    pod = _pod("a")
    pod["metadata"]["ownerReferences"][0]["name"] = plugins
    status: dict[str, Any] = {"allocatable": {}, "capacity": {}}
    node = {"metadata": {"name": "gpu-1", "annotations": {FORGOTTEN: "a"}}, "status": status}

    class Server(_Api):
        def get(self, path: str) -> dict[str, Any]:
            return {"items": [pod] if path.endswith("pods") else [node]}

        def patch(self, path: str, patch: Any) -> None:
            if "nodes" in path:
                status.update(patch["status"])

    monkeypatch.setattr(lab_nodes, "nodes", lambda lab: (NODE,))
    monkeypatch.setattr(devices, "asked", lambda node: WHOLE)
    monkeypatch.setattr(devices, "health", lambda node: ("boot", frozenset()))
    for name in ("hold", "let_go"):
        monkeypatch.setattr(devices, name, lambda *_: None)
    monkeypatch.setattr(devices, "without_gpus", lambda *_: "")
    api: Any = Server()
    stand_in = StandIn(api, "test", Logs(tmp_path / "logs"))
    stand_in.round()
    assert status == {"allocatable": {}, "capacity": {}}
    pod["metadata"]["uid"] = "b"
    stand_in.round()
    assert status["allocatable"] == status["capacity"] == {"nvidia.com/gpu": "2"}
