"""NVIDIA's unchanged plugin charts in the lab's cluster: a real API server, real helm 3 and 4, and the whole project.

    GPUNODE_REAL_CHARTS=/folder/with/charts make test-real

SIMULATED: GPUs, kubelets, and the device plugin; no image is pulled. It takes root and podman (`make lab-tools`). The
lab's Kubernetes is 1.20, and ends at custom resources: the operator's ClusterPolicy is not sent there, and node
feature discovery, whose probes are newer, is off. The tests follow each other.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.kubernetes.helm.manifest import drifted, live_objects, objects
from gpunode.lab.cluster.cluster import kubeconfig_of
from gpunode.lab.kubernetes_programs import programs
from tests.molecule.cluster.releases import NAME, KeptRelease, by
from tests.molecule.conftest import CHECKOUT, Run, command, inventory_with
from tests.real.chart_choices import (
    OLDEST,
    OPERATOR_CHOICES,
    PLUGIN_OPTIONS,
    operator_release,
    plugin_choices,
    plugin_release,
)
from tests.real.charts import OPERATOR, PLUGIN, SKIPPED, VARIABLE, Chart, Renderer, charts, combinations, folder

if folder() is None:
    pytest.skip(SKIPPED, allow_module_level=True)
if os.geteuid() != 0 or shutil.which("podman") is None:
    pytest.skip(f"{VARIABLE}: the lab's cluster takes root and podman (make lab-tools)", allow_module_level=True)

pytestmark = [pytest.mark.real, pytest.mark.simulated, pytest.mark.node]

# Two labs on one machine are of two names.
LAB = f"{os.environ.get('GPUNODE_TEST_LABS') or 'test'}-real-charts"
NAMESPACE = "nvidia-device-plugin"
DAEMON_SET, PROGRAM = f"{NAME}-{PLUGIN}", "nvidia-device-plugin-ctr"
ALONE = "deploys/device_plugin.py"
HEALED = {"Keep the release of the device plugin"}
SHARED: dict[str, object] = {"strategy": "time-slicing", "replicas": 5, "rename": True}
OFFERED = {"gpu-1": ("nvidia.com/gpu.shared", "10"), "gpu-2": ("nvidia.com/gpu", "2")}
# Of each series of the chart the newest, and the first that gpunode takes.
LIVED = ("0.15.0", "0.17.4", "0.18.2", "0.20.0")
_FIRST_TIME_S = 3600


def _chart(version: str) -> Chart:
    found = [each for each in charts(PLUGIN) if each.version == version]
    if not found:
        pytest.skip(f"{VARIABLE} has no {PLUGIN} {version}")
    return found[0]


@dataclass(frozen=True)
class Cluster:
    """Run the project's commands against the lab's cluster, with one chart by one helm."""

    kubeconfig: Path
    folder: Path

    def inventory(self, version: str, major: int = 3) -> str:
        chart = _chart(version)
        both: dict[str, object] = {
            "kubernetes": by(self.kubeconfig, programs(major), 120),
            "device_plugin": {"chart": str(chart.path), "version": chart.version},
        }
        return inventory_with(self.folder, {"gpu-1": {**both, "sharing": SHARED}, "gpu-2": both})

    def run(self, version: str, major: int = 3) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(version, major), ALONE, GPUNODE_LAB=LAB)

    def drift(self, version: str, major: int = 3) -> tuple[int, dict[str, str]]:
        """Return the exit status of drift, and what it says is not as desired -> why."""
        run = command("gpunode", "drift", "--json", self.inventory(version, major), GPUNODE_LAB=LAB)
        assert run.code in (0, 2), run.printed[-3000:]
        every = [each for found in run.findings.values() for each in found if each["class"] != "ok"]
        return run.code, {each["what"]: str(each.get("cause")) for each in every}

    def rollout(self, version: str, major: int = 3) -> Run:
        words = ("rollout", "--all", "--anew", "--json", self.inventory(version, major))
        return command("gpunode", *words, GPUNODE_LAB=LAB)

    def release(self, major: int = 3) -> KeptRelease:
        return KeptRelease(self.kubeconfig, programs(major), NAMESPACE)

    def image(self) -> str:
        every = self.release().live("daemonset", DAEMON_SET)["spec"]["template"]["spec"]["containers"]
        return str(next(each["image"] for each in every if each["name"] == PROGRAM))

    def edit(self) -> None:
        """Change the release's objects by hand: an image, a variable of the sidecar's, a configuration."""
        containers = [
            {"name": PROGRAM, "image": "registry.invalid/other:1"},
            {"name": "nvidia-device-plugin-sidecar", "env": [{"name": "SIGNAL", "value": "9"}]},
        ]
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        self.release().kubectl("patch", "daemonset", DAEMON_SET, "--patch", json.dumps(patch))
        data = json.dumps({"data": {"none": "changed: 1"}})
        self.release().kubectl("patch", "configmap", f"{DAEMON_SET}-configs", "--type", "merge", "--patch", data)

    def is_as_desired(self, version: str, major: int = 3) -> None:
        """Assert that a run changes nothing and makes no revision, that drift finds nothing, and what nodes offer."""
        before = self.release(major).history()
        run = self.run(version, major)
        assert (run.code, run.operations("success")) == (0, {}), run.printed[-3000:]
        assert self.release(major).history() == before
        assert self.drift(version, major) == (0, {})
        assert self.image().endswith(f":v{version}")
        for name, (resource, count) in OFFERED.items():
            assert self.release().live("node", name)["status"]["allocatable"][resource] == count


def _lab(*words: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / "gpunode", "lab", *words, "--lab", LAB],
        cwd=CHECKOUT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FIRST_TIME_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


@pytest.fixture(scope="module")
def kubeconfig() -> Iterator[Path]:
    """Return the kubeconfig of a cluster with two nodes, which goes in the end."""
    _lab("down")
    try:
        _lab("up", "--nodes", "2", "--gpu", "h100-80gb", "--gpus", "2", "--converged", "--cluster")
        found = kubeconfig_of(LAB)
        assert found is not None
        yield found
    finally:
        _lab("down")


@pytest.fixture
def cluster(kubeconfig: Path, tmp_path: Path) -> Cluster:
    return Cluster(kubeconfig, tmp_path)


def _kept_by(cluster: Cluster, manifests: Sequence[tuple[str, str]]) -> None:
    """Assert that objects as this API server would store them are as desired: (manifest, namespace) of each release."""
    every = [[each for each in yaml.safe_load_all(text) if each and _is_its_own(each)] for text, _ in manifests]
    for found, (_, namespace) in zip(every, manifests, strict=True):
        for each in found:
            each["metadata"].setdefault("namespace", namespace)
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": [each for found in every for each in found]})
    words = [str(programs(3) / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "create", "--filename", "-"]
    # Nothing is stored, so that all of them may have the same names; defaults and admission are the server's.
    done = subprocess.run(
        [*words, "--dry-run=server", "--output", "json"], input=text, capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers = iter(_answers(done.stdout))
    for found, (_, namespace) in zip(every, manifests, strict=True):
        items = [next(answers) for _ in found]
        live = live_objects(json.dumps({"kind": "List", "items": items}), namespace)
        wanted = objects(yaml.safe_dump_all(found), namespace)
        assert wanted and wanted.keys() == live.keys()
        assert drifted(wanted, live) == ()
    assert next(answers, None) is None


def _answers(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects that kubectl printed: a list of them, or one after the other."""
    decoder, rest = json.JSONDecoder(), text.strip()
    while rest:
        found, end = decoder.raw_decode(rest)
        yield from found["items"] if found.get("kind") == "List" else [found]
        rest = rest[end:].lstrip()


def _is_its_own(document: dict[str, Any]) -> bool:
    """Say whether an object is of a kind of Kubernetes' own, and no hook."""
    group = str(document["apiVersion"]).partition("/")[0]
    hook = "helm.sh/hook" in (document["metadata"].get("annotations") or {})
    is_custom = "." in group and not group.endswith(".k8s.io")
    return not (is_custom or hook or document["kind"] == "CustomResourceDefinition")


TAKEN = [each for each in charts(PLUGIN) if each.is_at_least(OLDEST)]


@pytest.mark.parametrize("chart", [*TAKEN, *charts(OPERATOR)], ids=str)
def test_a_real_api_server_keeps_what_the_chart_renders_and_gpunode_finds_no_difference(
    chart: Chart, cluster: Cluster
) -> None:
    asked = operator_release if chart.name == OPERATOR else plugin_release
    # By two is enough here: by three is tests/real/test_charts.py.
    by_two = list(combinations(PLUGIN_OPTIONS, 2))
    choices = OPERATOR_CHOICES if chart.name == OPERATOR else plugin_choices(chart, by_two)
    manifests = []
    for choice in choices:
        settings, release = asked(choice, chart)
        if settings.device_plugin.nfd != "chart":
            text = Renderer(3).render(settings, release.settings, release.values)
            manifests.append((text, release.settings.namespace))
    for namespace in {namespace for _, namespace in manifests}:
        if not cluster.release().kubectl("get", "namespace", namespace, "--ignore-not-found", "--output", "name"):
            cluster.release().kubectl("create", "namespace", namespace)
    assert len(manifests) > 5
    _kept_by(cluster, manifests)


@pytest.fixture(params=LIVED, scope="module")
def version(request: pytest.FixtureRequest) -> str:
    """Return the version of the chart whose life comes now; pytest goes through a file's tests once for each."""
    return _chart(request.param).version


def test_the_chart_is_installed_and_the_nodes_offer_their_gpus(cluster: Cluster, version: str) -> None:
    cluster.release().helm("uninstall", NAME, "--ignore-not-found", "--wait")
    run = cluster.run(version)
    assert run.code == 0, run.printed[-3000:]
    assert run.operations("success").keys() >= HEALED
    assert "caution" not in run.printed


def test_the_second_run_changes_nothing_and_drift_ends_with_0(cluster: Cluster, version: str) -> None:
    cluster.is_as_desired(version)


def test_what_was_changed_by_hand_is_told_by_drift_and_healed(cluster: Cluster, version: str) -> None:
    cluster.edit()
    code, wrong = cluster.drift(version)
    assert code == 2 and "changed by hand" in wrong[f"helm release {NAMESPACE}/{NAME}"], wrong
    run = cluster.run(version)
    assert run.code == 0 and run.operations("success").keys() == HEALED, run.printed[-3000:]
    cluster.is_as_desired(version)


def test_a_rollout_goes_through(cluster: Cluster, version: str) -> None:
    run = cluster.rollout(version)
    assert run.code == 0, run.printed[-3000:]
    done = sorted(name for wave in run.payload["waves"] for name, node in wave["nodes"].items() if node["passed"])
    assert (run.payload["state"], done) == ("finished", sorted(OFFERED)), run.payload
    cluster.is_as_desired(version)


def test_0_18_2_becomes_0_20_0(cluster: Cluster) -> None:
    # Whatever there is becomes 0.18.2 first: the way back is a change as well.
    for version in ("0.18.2", "0.20.0"):
        before = len(cluster.release().history())
        run = cluster.run(version)
        assert run.code == 0 and run.operations("success").keys() == HEALED, run.printed[-3000:]
        assert len(cluster.release().history()) == before + 1
        cluster.is_as_desired(version)


def test_helm_4_goes_on_where_helm_3_was_and_back_with_hand_edits_between(cluster: Cluster) -> None:
    cluster.is_as_desired("0.20.0", 4)
    for major in (4, 3, 4):
        cluster.edit()
        run = cluster.run("0.20.0", major)
        assert run.code == 0 and run.operations("success").keys() == HEALED, run.printed[-3000:]
        cluster.is_as_desired("0.20.0", major)
        cluster.is_as_desired("0.20.0", 7 - major)
