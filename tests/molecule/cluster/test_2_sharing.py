"""From bare nodes to a cluster whose two nodes offer different sharing, by one command; helm 3, then helm 4.

API server, scheduler, controllers, helm and kubectl are real, and so are the nodes' packages and files. SIMULATED:
GPUs, kubelets, and the device plugin, which the stand-in plays by the ConfigMap and labels that it finds.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.molecule.cluster.releases import NAME
from tests.molecule.cluster.sharing_life import _PATIENCE_S, NODES, OFFERED, Life
from tests.molecule.conftest import converge

pytestmark = [pytest.mark.real, pytest.mark.simulated, pytest.mark.life]


@pytest.fixture
def life(kubeconfig: Path, tmp_path: Path) -> Life:
    return Life(kubeconfig, tmp_path)


def test_one_command_takes_bare_nodes_to_a_cluster_with_different_sharing(life: Life) -> None:
    run = converge(inventory=life.inventory(3))
    assert run.code == 0, run.printed[-3000:]
    life.wait_for(OFFERED)
    labels = {name: life.node(name)["metadata"]["labels"]["nvidia.com/device-plugin.config"] for name in NODES}
    assert labels == {"gpu-1": "time-slicing-5-renamed", "gpu-2": "mig-mixed"}


def test_the_second_run_changes_nothing_and_makes_no_new_revision(life: Life) -> None:
    before = life.state()
    run = converge(inventory=life.inventory(3))
    assert (run.code, run.operations("success")) == (0, {})
    assert life.state() == before


@pytest.mark.parametrize(
    ("resource", "node"), [("nvidia.com/gpu.shared", "gpu-1"), ("nvidia.com/mig-2g.20gb", "gpu-2")]
)
def test_a_pod_gets_a_share_by_the_name_that_the_node_offers(life: Life, resource: str, node: str) -> None:
    release, name = life.release(), f"vectoradd-on-{node}"
    limits = json.dumps({"spec": {"containers": [{"name": name, "resources": {"limits": {resource: "1"}}}]}})
    image = "registry.invalid/samples:vectoradd"
    words = ("run", name, "--image", image, "--restart", "Never", "--override-type", "strategic", "--overrides", limits)
    release.kubectl(*words)
    release.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", f"pod/{name}", "--timeout", f"{_PATIENCE_S}s")
    assert release.live("pod", name)["spec"]["nodeName"] == node
    assert "Test PASSED" in release.kubectl("logs", name)
    release.kubectl("delete", "pod", name)


def test_a_label_that_was_removed_is_found_and_set_again(life: Life) -> None:
    life.release().kubectl("label", "node", "gpu-1", "nvidia.com/device-plugin.config-")
    # The configuration `none` is the default: whole GPUs.
    life.wait_for({"gpu-1": {"nvidia.com/gpu": "2"}})
    run = life.alone(3)
    assert (run.code, list(run.operations("success"))) == (0, ["Label the node in the cluster"]), run.printed[-2000:]
    life.wait_for(OFFERED)


def test_helm_4_finds_the_release_of_helm_3_as_asked_and_brings_it_back_where_it_is_gone(life: Life) -> None:
    before = life.state()
    run = life.alone(4)
    assert (run.code, run.operations("success")) == (0, {}), run.printed[-2000:]
    assert life.state() == before
    life.release(4).helm("uninstall", NAME, "--wait")
    life.wait_for({name: {} for name in NODES})
    run = life.alone(4)
    assert (run.code, list(run.operations("success"))) == (0, ["Keep the release of the device plugin"])
    life.wait_for(OFFERED)
