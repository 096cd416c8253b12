"""What a change of a node's MIG layout has its cluster do where several steps of a run meet; kubectl is SIMULATED."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.components.mig.state import DISABLED, ENABLED
from gpunode.components.mig.target import TargetError
from gpunode.facts.transaction import TransactionJournal
from gpunode.kubernetes.device_plugin.cluster import Cluster as KubectlCluster
from gpunode.kubernetes.nodes.labels import PRESENT
from gpunode.operations import cluster_labels, control_plane, device_plugin, mig_in_cluster
from gpunode.settings import settings_from
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.mig_in_cluster import ASKED, MPS, NODE, PLUGIN, Ask, Cluster, asking
from tests.support.mig_target import DECLARATION, MIXED, gpu

pytestmark = [pytest.mark.pure, pytest.mark.simulated]


@pytest.fixture
def ask() -> Iterator[Ask]:
    with asking() as made:
        yield made


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(ASKED, PLUGIN)


def test_a_node_that_is_as_asked_has_nothing_asked_of_its_cluster(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "mig.yaml").write_text(DECLARATION)
    settings = settings_from({**NODE, "mig": {"config": "mixed", "file": str(tmp_path / "mig.yaml")}})
    cluster = Cluster(settings, PLUGIN)
    # What brings the layout back at a boot is still to be written.
    assert ask(cluster, gpu(0, ENABLED, *MIXED), settings) == ["transaction"]
    assert cluster.asked == []


def test_what_fails_once_an_earlier_change_is_undone_has_the_labels_come_back(ask: Ask, cluster: Cluster) -> None:
    ask.host.readings[TransactionJournal] = Journal("began", "target", None, False)

    def refuse(*_: Any) -> None:
        raise TargetError("no place")

    ask.patch.setattr("gpunode.components.mig.decide.targets", refuse)
    assert ask(cluster, gpu(0, DISABLED)) == ["cluster", "transaction", "failed"]
    assert cluster.pods == [] and cluster.labels[PRESENT] == "true"


def test_the_labels_come_back_where_the_nodes_were_asked_for_before_the_layout_changed(
    ask: Ask, cluster: Cluster
) -> None:
    # Another host's step, as with `--serial`.
    device_plugin.nodes(KubectlCluster(ASKED.kubernetes, ASKED.proxy, cluster))
    ask(cluster, gpu(0, DISABLED))
    assert PRESENT not in cluster.labels
    assert ask.label(cluster) == ["cluster"] and cluster.labels[PRESENT] == "true"
    # A node whose layout stays is asked for with all others.
    cluster.asked.clear()
    cluster_labels.takes_part(ASKED, ASKED)
    ask.label(cluster)
    assert "get nodes" not in cluster.asked


def test_a_forecast_tells_which_pods_would_go_and_takes_none(ask: Ask) -> None:
    cluster = Cluster(ASKED, PLUGIN, MPS)
    ask.host.state.is_executing = False
    ask.patch.setattr(control_plane, "runner", lambda _: cluster)
    next(mig_in_cluster.set_aside(ASKED, clears=True))
    (said,) = ask.said
    assert unnamed(said, "node gpu-1", "plugin/nvdp") == []
    assert PRESENT in cluster.labels and cluster.pods == ["nvdp-x", "nvdp-mps-x"]


@pytest.mark.parametrize("killed", [False, True], ids=["nothing is missing", "a killed run took a label off"])
def test_a_failure_without_mig_is_told_of_hosts_that_take_part_and_brings_labels_back(
    ask: Ask, cluster: Cluster, killed: bool
) -> None:
    before, whole = dict(cluster.labels), settings_from({"kubernetes": {"enabled": True}})
    if killed:
        del cluster.labels[PRESENT]
    ask.patch.setattr(control_plane, "runner", lambda _: cluster)
    cluster_labels.takes_part(whole, whole)
    ask.host.state.fail(ask.host)
    ask.host.state.fail(replace(ask.host, name="gpu-2"))
    assert cluster.labels == before and cluster.asked.count("get nodes") == 1
