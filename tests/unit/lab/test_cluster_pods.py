"""What becomes of pods by the kubelets' stand-in, and that it says so; the API server is SIMULATED here, too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cluster.logs import Logs
from gpunode.lab.cluster.pods import outcome, status
from gpunode.lab.cluster.stand_in import StandIn
from gpunode.lab.nodes import Node

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

NOW = "2026-11-22T07:00:00Z"
NODE = Node("gpu-1", "gpunode-test-gpu-1", "10.0.0.2", "h100-80gb", 2, "test")


def _pod(image: str = "web:1", name: str = "a", **more: Any) -> dict[str, Any]:
    spec = {"nodeName": "gpu-1", "containers": [{"name": "main", "image": image}], **more.pop("spec", {})}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}", **more}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _status(pod: dict[str, Any], gpu_trouble: str | None = None) -> dict[str, Any]:
    return status(pod, outcome(pod, gpu_trouble), NOW)


def test_a_pod_runs_waits_or_ends_and_what_the_scheduler_said_stays() -> None:
    pod, scheduled = _pod(), {"type": "PodScheduled", "status": "True"}
    pod["status"]["conditions"] = [scheduled, {"type": "Ready", "status": "False"}]
    found = _status(pod)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": NOW}
    assert found["phase"] == "Running" and scheduled in found["conditions"]
    assert [each for each in found["conditions"] if each["type"] == "Ready"] == [ready]
    assert found["containerStatuses"][0]["state"] == {"running": {"startedAt": NOW}}
    waits = _status(_pod("x:does-not-exist"))
    assert waits["containerStatuses"][0]["state"]["waiting"]["reason"] == "ErrImagePull"
    ill = _status(_pod("samples:vectoradd", spec={"restartPolicy": "Never"}), "GPU is lost")
    assert ill["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


@pytest.mark.parametrize("image", ["web:1", "registry:5000/web:v1@sha256:" + "a" * 64, "registry:5000/web"])
def test_a_pod_tells_the_digest_of_what_it_runs(image: str) -> None:
    def told(name: str) -> str:
        return str(_status(_pod(name))["containerStatuses"][0]["imageID"])

    repository, _, digest = told(image).partition("@")
    assert repository == image.partition("@")[0].removesuffix(":1").removesuffix(":v1")
    assert len(digest) == len("sha256:") + 64 and image.partition("@")[2] in ("", digest)
    assert told("x:does-not-exist") == ""


class SimulatedApi:
    """Answer with the pods and nodes that a test made up, and keep what is told."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        self.pods = pods
        self.told: list[tuple[str, str, Mapping[str, Any]]] = []
        self.status: dict[str, Any] = {"allocatable": {"cpu": "8"}, "capacity": {"cpu": "8"}}

    def get(self, path: str) -> dict[str, Any]:
        node = {"metadata": {"name": "gpu-1"}, "status": self.status}
        return {"items": self.pods if path.endswith("pods") else [node]}

    def patch(self, path: str, patch: Mapping[str, Any]) -> None:
        self.told.append(("patch", path, patch))

    def delete(self, path: str, options: Mapping[str, Any]) -> None:
        self.told.append(("delete", path, options))


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setattr(lab_nodes, "nodes", lambda lab: (NODE,))
    api: Any = SimulatedApi()
    return StandIn(api, "test", Logs(tmp_path / "logs"))


def _round(stand_in: StandIn, *pods: dict[str, Any]) -> list[tuple[str, str, Mapping[str, Any]]]:
    api: Any = stand_in.api
    api.pods, api.told = pods, []
    stand_in.round()
    return list(api.told)


def test_pods_of_other_nodes_and_pods_that_wait_for_a_node_are_left_alone(stand_in: StandIn) -> None:
    other, unbound = _pod(name="b", spec={"nodeName": "other"}), _pod(name="c", deletionTimestamp=NOW)
    del unbound["spec"]["nodeName"]
    assert _round(stand_in, other, unbound) == []


def test_a_pod_is_reported_once_as_simulated(stand_in: StandIn, capsys: pytest.CaptureFixture[str]) -> None:
    ((verb, path, _),) = _round(stand_in, _pod())
    assert (verb, path) == ("patch", "/api/v1/namespaces/team/pods/a/status")
    assert _round(stand_in, _pod()) == []
    (line,) = capsys.readouterr().out.splitlines()
    assert "SIMULATED kubelet of gpu-1: pod team/a is Running, ready" in line


def test_a_terminating_pod_is_deleted_by_its_uid_and_its_log_goes(stand_in: StandIn) -> None:
    _round(stand_in, _pod())
    assert stand_in.logs.get("team", "a") == "SIMULATED: no container runs\n"
    ((verb, path, options),) = _round(stand_in, _pod(deletionTimestamp=NOW))
    assert (verb, path) == ("delete", "/api/v1/namespaces/team/pods/a")
    assert options == {"gracePeriodSeconds": 0, "preconditions": {"uid": "uid-a"}}
    assert stand_in.logs.get("team", "a") is None


def test_a_resource_that_is_offered_no_more_stays_at_zero(stand_in: StandIn) -> None:
    api: Any = stand_in.api
    for part in ("capacity", "allocatable"):
        api.status[part]["nvidia.com/gpu"] = "2"
    ((_, path, patch),) = _round(stand_in)
    gone = {"nvidia.com/gpu": "0"}
    assert (path, patch) == ("/api/v1/nodes/gpu-1/status", {"status": {"capacity": gone, "allocatable": gone}})


def test_without_a_pod_of_the_plugin_nothing_is_offered(stand_in: StandIn) -> None:
    assert _round(stand_in) == []


def test_no_name_leads_out_of_the_folder_of_logs(tmp_path: Path) -> None:
    (tmp_path / "x_secret").write_text("secret")
    logs = Logs(tmp_path / "logs")
    assert logs.get("../x", "secret") is None
    logs.set("team", "a", "said")
    assert logs.get("team", "a") == "said"
