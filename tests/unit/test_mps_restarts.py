"""What drift and the plan tell of MPS daemons that would restart under clients; helm and kubectl are SIMULATED.

The controller restarts them all at once here, by a person's RollingUpdate; node by node: test_mps_turns.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import ExitCode, Finding, FindingClass
from gpunode.cli.plan import _exit_code, live_plans
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import PluginMps as PluginMpsFact
from gpunode.fleet import plan_cluster
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes.nodes.labels import CONFIG, configuration
from gpunode.node.plan import Plan
from gpunode.operations import verify_cluster
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.mps_clients import gpu_pod
from tests.support.mps_restarts import (
    CLUSTER,
    NODES,
    READING,
    RELEASE,
    SET,
    Told,
    _settings,
    cluster,
    installed,
    told,
)
from tests.support.simulated_cluster import SimulatedCluster
from tests.support.simulated_host import Host

__all__ = ["cluster"]
pytestmark = [pytest.mark.pure, pytest.mark.tier2]
THREADS = "the plugin's MPS daemon of nvidia.com/gpu, active thread percentage"


def test_a_restart_that_may_be_is_in_the_plan_of_its_node_and_drift_says_whom_it_ends(
    cluster: SimulatedCluster,
) -> None:
    found = told({"gpu-1": _settings(cluster, 4, drain=True), "gpu-2": _settings(cluster, 8, drain=True)})
    (step,) = found.plans["gpu-1"].steps
    assert unnamed(step.action, "gpu-1", "team/training") == []
    assert (step.disruption, step.pending, step.drains) == (Disruption.restart, False, True)
    assert found.plans["gpu-1"].drains and _rows(found, "gpu-2") == [f"label {CONFIG}"]
    assert (found.cluster.verdict, [step.what for step in found.cluster.steps]) == ("can be done", [RELEASE])
    item = found.drift[CLUSTER][RELEASE]
    assert (item.finding_class, item.disruption) == (FindingClass.DRIFT, Disruption.restart)
    assert unnamed(item.cause, "team/training") == [] and not item.by_person
    # A node that is not drained is restarted all the same.
    found = told({"gpu-1": _settings(cluster, 4), "gpu-2": _settings(cluster, 8)})
    assert [(step.pending, step.drains) for step in found.plans["gpu-1"].steps] == [(False, False)]


def test_what_the_settings_forbid_is_pending_in_plan_and_drift_down_to_what_follows(cluster: SimulatedCluster) -> None:
    forbidden, named = {"allow": "nothing"}, ("gpu-1", "1 GPU pod", "disruption.allow is nothing")
    counts = {"gpu-1": 4, "gpu-2": 8}
    found = told({name: _settings(cluster, count, disruption=forbidden) for name, count in counts.items()})
    (step,), (label,) = found.plans["gpu-1"].steps, found.plans["gpu-2"].steps
    assert step.pending and unnamed(step.action, *named) == [] and not step.drains
    # What the settings forbid fails no run, which leaves it pending.
    assert _exit_code(dict(found.plans)) is ExitCode.NEGATIVE
    assert {each.verdict for each in found.plans.values()} == {"waits"}
    assert label.pending and unnamed(label.cause, *named) == []
    pending = {(host, item.what) for host, each in found.drift.items() for item in each.values() if _pending(item)}
    assert pending == {
        (CLUSTER, RELEASE),
        ("gpu-2", f"label {CONFIG}"),
        ("gpu-2", "allocatable nvidia.com/gpu"),
        ("gpu-2", THREADS),
    }
    assert (found.drift["gpu-2"][THREADS].actual, found.drift["gpu-2"][THREADS].desired) == ("25.0", "12.0")
    assert found.drift["gpu-1"][THREADS].finding_class is FindingClass.OK
    assert unnamed(found.drift[CLUSTER][RELEASE].cause, *named) == []
    assert not any(item.by_person for each in found.drift.values() for item in each.values() if _pending(item))


def _rows(found: Told, host: str) -> list[str | None]:
    return [step.what for step in found.plans[host].steps]


def _pending(item: Finding) -> bool:
    return item.finding_class is FindingClass.RESTART_PENDING


@pytest.mark.parametrize("most", [1, 2])
def test_two_nodes_with_clients_are_drained_where_two_may_be_empty_and_else_the_plan_says_why_not(
    cluster: SimulatedCluster, most: int
) -> None:
    pods = [gpu_pod("training"), gpu_pod("serving", node="gpu-2")]
    cluster.write(objects={**cluster.state()["objects"], "pods": pods})
    bound = {"max_parallel": most}
    found = told({name: _settings(cluster, 8, drain=True, disruption=bound) for name in NODES})
    steps = [step for each in found.plans.values() for step in each.steps if step.code is None and not step.fails]
    assert [step.pending for step in steps] == [most == 1] * 2 and [step.drains for step in steps] == [most == 2] * 2
    assert all((unnamed(step.action, "gpu-1, gpu-2") == []) is (most == 1) for step in steps)
    assert _pending(found.drift[CLUSTER][RELEASE]) is (most == 1)
    assert [each.verdict for each in found.plans.values()] == ["would fail" if most == 1 else "can be done"] * 2
    assert _exit_code(dict(found.plans)) is (ExitCode.NEGATIVE if most == 1 else ExitCode.GOOD)


def test_a_look_at_some_hosts_tells_that_the_others_are_in_the_way(cluster: SimulatedCluster) -> None:
    found = told({"gpu-1": _settings(cluster, 4), "gpu-2": _settings(cluster, 8)}, only=("gpu-2",))
    step, stop = found.plans["gpu-2"].steps
    assert step.pending and unnamed(step.cause, "gpu-1", "1 GPU pod") == []
    assert stop.fails and unnamed(stop.cause, "gpu-1") == [] and found.cluster.verdict == "would fail"
    assert _pending(found.drift[CLUSTER][RELEASE])


@pytest.mark.parametrize("name", NODES)
def test_the_verdict_alone_says_of_what_waits_what_drift_says(
    cluster: SimulatedCluster, name: str, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No step of such a run has noted that anything waits."""
    forbidden, clock = {"allow": "nothing"}, iter(range(0, 100_000, 30))
    hosts = {each: _settings(cluster, count, disruption=forbidden) for each, count in zip(NODES, (4, 8), strict=True)}
    pods = [{"kind": "DaemonSet", "metadata": {"name": SET, "annotations": {"meta.helm.sh/release-name": "nvdp"}}}]
    pods += [_ready(each, number) for number, each in enumerate(NODES)]
    cluster.write(objects={**cluster.state()["objects"], "daemonsets.apps,pods": pods})
    monkeypatch.setattr(verify_cluster, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(verify_cluster, "sleep", lambda _: None)
    host.name = name
    host.readings |= {MigFact: READING.mig, GpusFact: READING.gpus, PluginMpsFact: READING.plugin_mps}
    for command in verify_cluster.verified._inner(settings=hosts[name], gpus=(), everyone=hosts):
        assert command.function(host.state, host) is False
    drift = [item for item in told(hosts).drift[name].values() if item.what != RELEASE and not _good(item)]
    assert all(map(_pending, drift)) and bool(drift) is (name == "gpu-2")
    assert not host.refusals
    counts = [int(word) for word in host.noops[0].partition(" as desired")[0].split(" of ")]
    assert counts[-1] - counts[0] == len(drift) and counts[-1] >= 8


def _good(item: Finding) -> bool:
    return item.finding_class is FindingClass.OK


def _ready(node_name: str, number: int) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": f"{SET}-{number}", "ownerReferences": [{"kind": "DaemonSet", "name": SET}]},
        "spec": {"nodeName": node_name},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_a_label_alone_restarts_its_own_node_s_daemon(cluster: SimulatedCluster) -> None:
    """The release has both entries already, and keeps the one that a node is labelled for."""
    hosts = {"gpu-1": _settings(cluster, 8), "gpu-2": _settings(cluster, 4)}
    installed(cluster, hosts["gpu-1"], hosts["gpu-2"])
    found = told(hosts)
    step, label = found.plans["gpu-1"].steps
    assert unnamed(step.action, "gpu-1", "team/training") == [] and label.what == f"label {CONFIG}"
    assert found.drift["gpu-1"][f"label {CONFIG}"].disruption is Disruption.restart
    assert found.drift[CLUSTER][RELEASE].finding_class is FindingClass.OK


def test_nothing_is_said_where_nobody_feels_it_and_pods_are_not_asked_for_where_nothing_restarts(
    cluster: SimulatedCluster,
) -> None:
    same = {name: _settings(cluster, 4) for name in NODES}
    found = told(same)
    assert all(each.steps == () and each.cautions == () for each in found.plans.values())
    assert not cluster.called("kubectl get pods --all-namespaces --output")
    assert found.drift[CLUSTER][RELEASE].finding_class is FindingClass.OK
    cluster.write(objects={**cluster.state()["objects"], "pods": []})
    found = told({"gpu-1": _settings(cluster, 4), "gpu-2": _settings(cluster, 8)})
    assert (_rows(found, "gpu-1"), _rows(found, "gpu-2")) == ([], [f"label {CONFIG}"])
    assert found.drift[CLUSTER][RELEASE].disruption is Disruption.nothing


def test_clients_that_the_cluster_does_not_list_are_not_known_in_drift(cluster: SimulatedCluster) -> None:
    cluster.write(failures={"kubectl get pods": "connection refused"})
    found = told({"gpu-1": _settings(cluster, 8), "gpu-2": _settings(cluster, 8)})
    assert found.drift[CLUSTER]["pods with a GPU"].finding_class is FindingClass.NOT_KNOWN


def test_the_entry_of_a_configuration_is_the_one_that_the_labels_name(cluster: SimulatedCluster) -> None:
    assert configuration(_settings(cluster, 4).sharing).name == cluster.labels("gpu-1")[CONFIG]


@pytest.mark.parametrize("enabled", [True, False])
def test_the_command_asks_a_cluster_for_it_where_there_is_one(cluster: SimulatedCluster, enabled: bool) -> None:
    hosts = {"gpu-1": _settings(cluster, 4, drain=True), "gpu-2": _settings(cluster, 8, drain=True)}
    if not enabled:
        hosts = {name: settings_from({}) for name in NODES}
    answers = tuple(Answer(name, each, READING, None) for name, each in hosts.items())
    with (
        patch("gpunode.fleet.nodes.read", lambda *_, **__: answers),
        patch.object(plan_cluster, "host_settings", lambda _: hosts),
    ):
        found = live_plans(Path("none.py"), ())
    restarting = [
        step.action for each in found.values() if isinstance(each, Plan) for step in each.steps if step.drains
    ]
    assert ("restart the MPS daemon of gpu-1, which ends team/training" in restarting) is enabled
    assert bool(cluster.called("kubectl get pods --all-namespaces --output")) is enabled
