"""What a change of MPS costs its clients, and that run, verdict, drift, plan and rollout agree whether it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.mps import Mps
from gpunode.components.mps.daemon import UNITS
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet.rollout.choice import left_out
from gpunode.node import Node
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations.verify import verified
from gpunode.settings import Settings, settings_from
from gpunode.system.applied import Applied, OwnFile
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpus
from tests.support.mps import H100, ROW, asked, run, settled
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure


def on(settings: Settings, there: Mps, gpus: int = 1, **row: Any) -> Node:
    rows = tuple(replace(ROW, index=index, **row) for index in range(gpus))
    return replace(GOOD, mps=there, gpus=Gpus("ok", 0, None, rows), pci=PciGpus((H100,) * gpus))


def settings_of(allow: str, **more: Any) -> Settings:
    mps = {"enabled": True, **more}
    return settings_from({"driver": {"version": "580.95.05"}, "mps": mps, "disruption": {"allow": allow}})


def bad(settings: Settings, node: Node) -> list[Finding]:
    return [item for item in judge(settings, node) if item.finding_class is not FindingClass.OK]


def left(settings: Settings, node: Node) -> FindingClass | None:
    """Return as what a rollout leaves a node out; None where it takes it."""
    report = NodeReport("gpu-1", judge(settings, node))
    found = left_out(report, everyone=False, allowed=Disruption[settings.disruption.allow])
    return None if found is None else found.finding_class


RESTARTS = [
    {"enabled": False},
    {"daemons": "gpu"},
    {"compute_mode": "default"},
    # What takes no restart itself waits with what does.
    {"compute_mode": "default", "active_thread_percentage": "50"},
]


@pytest.mark.parametrize("clients", [2, None])
@pytest.mark.parametrize("more", RESTARTS)
def test_what_waits_for_clients_is_pending_to_verdict_plan_and_rollout_as_to_the_run(
    more: dict[str, Any], clients: int | None, host: Host
) -> None:
    settings, there = settings_of("nothing", **more), settled(asked(), gpus=2, clients=clients)
    node = on(settings, there, gpus=2)
    assert run(host, there, settings.mps, gpus=2, allowed=False) == [] and "restart pending" in host.noops[-1]
    host.readings[NodeFact] = node
    assert commands(verified, host, settings=settings) == [] and not host.refusals
    found = bad(settings, node)
    assert found and {(item.finding_class, item.disruption) for item in found} == {
        (FindingClass.RESTART_PENDING, Disruption.restart)
    }
    assert {item.cause for item in found} == {host.noops[0].removeprefix("restart pending: ")}
    steps = plan(settings, node).steps
    assert steps and all(step.pending and step.disruption is Disruption.restart for step in steps)
    assert left(settings, node) is FindingClass.RESTART_PENDING


@pytest.mark.parametrize("more", RESTARTS)
def test_what_no_client_of_mps_feels_is_done_and_waits_for_no_container(more: dict[str, Any], host: Host) -> None:
    settings, there = settings_of("nothing", **more), settled(asked(), gpus=2)
    node = on(settings, there, gpus=2)
    node = replace(node, containerd=replace(node.containerd, shims=3))
    assert len(run(host, there, settings.mps, gpus=2, allowed=False)) == 1
    assert {item.finding_class for item in bad(settings, node)} == {FindingClass.DRIFT}
    steps = plan(settings, node).steps
    assert steps and not [step for step in steps if step.pending]
    assert max(step.disruption for step in steps) is Disruption.restart
    assert left(settings, node) is None


def test_clients_of_a_daemon_that_stays_make_no_other_one_wait(host: Host) -> None:
    settings = settings_of("nothing", daemons="gpu")
    there = settled(settings.mps, gpus=2)
    first, second = there.daemons
    there = replace(there, daemons=(replace(first, clients=2), replace(second, active=False, answers=False)))
    node = on(settings, there, gpus=2)
    (script,) = run(host, there, settings.mps, gpus=2, allowed=False)
    assert "\nrestart=nvidia-mps@1.service\n" in script
    assert [item.finding_class for item in bad(settings, node)] == [FindingClass.DRIFT]
    assert [step.pending for step in plan(settings, node).steps] == [False] and left(settings, node) is None


def test_a_compute_mode_costs_a_restart_where_the_unit_sets_another_one_and_nothing_where_it_strayed(
    host: Host,
) -> None:
    there = settled(asked(), clients=2)
    strayed = on(settings_of("nothing"), there, compute_mode="Default")
    (item,) = bad(settings_of("nothing"), strayed)
    assert (item.finding_class, item.disruption) == (FindingClass.DRIFT, Disruption.nothing)
    (step,) = plan(settings_of("nothing"), strayed).steps
    assert (step.code, step.disruption, step.pending) == ("mps.compute-mode-of-gpu", Disruption.nothing, False)
    other = settings_of("restart", compute_mode="default")
    (item,) = bad(other, on(other, there))
    assert (item.finding_class, item.actual, item.disruption) == (
        FindingClass.DRIFT, "Exclusive_Process", Disruption.restart,
    )  # fmt: skip
    (step,) = plan(other, on(other, there)).steps
    assert (step.code, step.disruption, step.pending) == ("mps.compute-mode-of-gpu", Disruption.restart, False)
    # A GPU that was set to it by hand changes nothing of what its unit does, and the run writes that anew.
    by_hand = on(other, there, compute_mode="Default")
    (item,) = bad(other, by_hand)
    assert str(item.actual).startswith("Default, ") and item.disruption is Disruption.restart
    (script,) = run(host, there, other.mps, compute_mode="Default")
    assert "\nrestart=nvidia-mps.service\n" in script


def test_a_unit_that_is_gone_from_under_clients_is_not_drift_that_a_run_would_mend(host: Host) -> None:
    settings, there = settings_of("nothing"), settled(asked(), clients=2)
    gone = replace(there, files=tuple((path, digest) for path, digest in there.files if path != UNITS[0]))
    recorded = Applied(True, "0", "x", ((UNITS[0], OwnFile("a" * 64, "644")),), ())
    node = replace(on(settings, gone), applied=recorded)
    assert run(host, gone, settings.mps, allowed=False) == [] and "restart pending" in host.noops[-1]
    assert [(item.what, item.finding_class) for item in bad(settings, node)] == [
        (f"file {UNITS[0]}", FindingClass.RESTART_PENDING)
    ]
    assert [step.pending for step in plan(settings, node).steps] == [True]
    assert left(settings, node) is FindingClass.RESTART_PENDING


@pytest.mark.parametrize(("clients", "drains"), [(2, True), (0, False)])
def test_the_plan_drains_a_node_for_the_clients_of_a_daemon_that_goes_as_the_run_does(
    clients: int, drains: bool
) -> None:
    settings = settings_from({"driver": {"version": "580.95.05"}, "kubernetes": {"enabled": True}})
    node = on(settings, settled(asked(), clients=clients))
    (step,) = [step for step in plan(settings, node).steps if step.component == "mps"]
    assert (step.action, step.drains, step.pending) == ("stop nvidia-mps.service", drains, False)
