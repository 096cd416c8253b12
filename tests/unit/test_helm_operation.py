"""The operation that keeps a helm release: real helm and kubectl on a SIMULATED cluster that nobody can write to."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyinfra.api import FunctionCommand

from gpunode.kubernetes.device_plugin.desired_cluster import DesiredCluster, desired_cluster
from gpunode.kubernetes.helm.release import MARK
from gpunode.lab.errors import LabError
from gpunode.lab.kubernetes_programs import WHEELS, programs
from gpunode.operations import helm
from gpunode.settings import Settings, check_hosts
from tests.support.messages import unnamed
from tests.support.simulated_host import Host
from tests.support.simulated_releases import NAMESPACE, Stored, releases
from tests.support.stored_object import stored

CHART = Path(__file__).resolve().parents[2] / "lab" / "charts" / "nvidia-device-plugin"


@pytest.fixture(autouse=True)
def _unlabelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no node of the cluster have a label; nodes are not simulated here."""
    monkeypatch.setattr(helm, "asked_once", lambda name, ask: {})


def _settings(kubernetes: dict[str, Any], **device_plugin: Any) -> tuple[DesiredCluster, Settings]:
    plugin = {"chart": str(CHART), "namespace": NAMESPACE, **device_plugin}
    data = {"kubernetes": {"enabled": True, **kubernetes}, "device_plugin": plugin}
    found = check_hosts({"gpu-1": data})
    asked = desired_cluster(found)
    assert asked is not None
    return asked, found["gpu-1"]


def _yielded(asked: DesiredCluster, settings: Settings) -> list[FunctionCommand]:
    return list(helm.release._inner(desired=asked.release, proxy=settings.proxy, everyone={}))


def _refused(host: Host, kubernetes: dict[str, Any], name: str, **device_plugin: Any) -> None:
    """Find that the operation refuses, and names a setting."""
    (refusal,) = _yielded(*_settings(kubernetes, **device_plugin))
    assert refusal.function(None, host) is False
    assert unnamed("\n".join(host.refusals), name) == []


@pytest.mark.pure
def test_where_there_is_no_helm_the_remedy_is_told(host: Host) -> None:
    _refused(host, {"helm": "/nonexistent/helm"}, "kubernetes.helm")


def _without_hooks(manifest: str) -> str:
    return "\n---\n".join(part for part in manifest.split("---\n") if "helm.sh/hook" not in part)


@contextmanager
def _deployed(folder: Path, program: Path, image: str = "") -> Iterator[dict[str, Any]]:
    """Give `kubernetes` settings of a cluster where the release is as desired, but for the image of live objects."""
    asked, _ = _settings({})
    words = [str(program / "helm"), "template", "nvdp", str(CHART), "--namespace", NAMESPACE, "--values", "-"]
    done = subprocess.run(words, input=json.dumps(asked.values), capture_output=True, text=True, check=True)
    manifest = _without_hooks(done.stdout)
    changed = manifest.replace("fixture.invalid/nvidia/k8s-device-plugin", image) if image else manifest
    live = [stored(each) for each in yaml.safe_load_all(changed) if each]
    with releases(folder, [Stored(1, "deployed", MARK, manifest)], live) as kubeconfig:
        yield {"helm": str(program / "helm"), "kubectl": str(program / "kubectl"), "kubeconfig": str(kubeconfig)}


@pytest.fixture(params=sorted(WHEELS), ids=lambda major: f"helm-{major}", scope="module")
def program(request: pytest.FixtureRequest) -> Path:
    """Return the folder of helm 3 or 4, and kubectl."""
    try:
        return programs(request.param)
    except LabError as error:
        pytest.skip(f"helm is not to be had here: {error}")


@pytest.mark.real
@pytest.mark.tier2
def test_a_release_that_is_as_asked_gets_no_new_revision(program: Path, tmp_path: Path, host: Host) -> None:
    with _deployed(tmp_path, program) as kubernetes:
        assert _yielded(*_settings(kubernetes)) == []
    assert host.noops == ["release gpu/nvdp: nvidia-device-plugin 0.20.0 as desired"] and not host.refusals


@pytest.mark.real
@pytest.mark.tier2
def test_an_object_changed_by_hand_is_upgraded(program: Path, tmp_path: Path, host: Host) -> None:
    with _deployed(tmp_path, program, image="debug") as kubernetes:
        (upgrade,) = _yielded(*_settings(kubernetes))
        # The cluster takes no changes, so that helm fails.
        assert upgrade.function(None, host, *upgrade.args) is False
    assert host.refusals[0].startswith("helm upgrade: Error: ") and not host.noops


@pytest.mark.real
@pytest.mark.tier2
@pytest.mark.parametrize("chart", ["/nonexistent/chart", None], ids=["no chart", "no answer"])
def test_what_is_not_there_is_told(program: Path, tmp_path: Path, host: Host, chart: str | None) -> None:
    with _deployed(tmp_path, program) as kubernetes:
        if chart is not None:
            _refused(host, kubernetes, "device_plugin.chart", chart=chart)
    if chart is None:
        _refused(host, kubernetes, "kubernetes.kubeconfig")
