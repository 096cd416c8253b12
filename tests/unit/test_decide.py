"""What is decided once is what drift finds, what the plan promises, and what the operation does: on any node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from facts.containerd import Containerd as ContainerdFact
from facts.docker import Docker as DockerFact
from facts.transaction import TransactionJournal
from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import is_forbidden
from gpunode.containerd.editor import Runtimes, render
from gpunode.containerd.state import DropIn
from gpunode.disturbance import Disturbance
from gpunode.docker.editor import Daemon
from gpunode.docker.editor import render as render_docker
from gpunode.findings import FindingClass
from gpunode.node import Node
from gpunode.plan import plan
from gpunode.settings import settings_from
from gpunode.transaction import Journal
from gpunode.verify import decisions, judge
from operations import containerd, docker
from tests.unit.simulated_host import Host, commands
from tests.unit.test_docker_change import RIGHT
from tests.unit.test_verify import DATA, GOOD

pytestmark = pytest.mark.pure

CGROUP = "containerd.runtimes.runc.options.SystemdCgroup"
_TEXTS = (
    GOOD.containerd.config_text,
    render(None, "1.6.20", Runtimes(default="runc")),
    render(None, "1.6.20", Runtimes(systemd_cgroup=False)),
    "",
    "version = [\n",
)
CONTAINERD = st.builds(
    lambda **changes: replace(GOOD.containerd, **changes),
    config_text=st.sampled_from(_TEXTS),
    default_runtime=st.sampled_from(["nvidia", "runc", None]),
    active=st.booleans(),
    enabled=st.booleans(),
    cri_plugin=st.sampled_from(["ok", "error", None]),
    shims=st.sampled_from([0, 2]),
    configured_at=st.sampled_from([5.0, 99.0]),
    enable_cdi=st.sampled_from([None, True, False]),
    drop_ins=st.sampled_from(
        [(), (DropIn("/etc/containerd/conf.d/99-other.toml", ((CGROUP, "false"),), section=True),)]
    ),
)
DOCKER = st.builds(
    lambda **changes: replace(RIGHT, **changes),
    config_text=st.sampled_from([RIGHT.config_text, "{}", "{", render_docker(None, "26.1.5", Daemon("runc"))]),
    default_runtime=st.sampled_from(["nvidia", "runc", None]),
    cgroup_driver=st.sampled_from(["systemd", "cgroupfs", None]),
    active=st.booleans(),
    enabled=st.booleans(),
    containers=st.sampled_from([0, 2]),
    live_restore=st.booleans(),
    cdi=st.sampled_from([None, True, False]),
    flags=st.sampled_from([(), ("--default-runtime",)]),
)
ALLOW = st.sampled_from(["nothing", "restart", "reboot"])


def settings(allow: str, cdi: bool | None) -> Any:
    asked = {"enabled": True, "cdi": cdi}
    return settings_from({**DATA, "containerd": asked, "docker": asked, "disruption": {"allow": allow}})


def _agree(component: str, node: Node, allow: str, cdi: bool | None, operation: Any, fact: type, actual: Any) -> None:
    asked = settings(allow, cdi)
    decision = decisions(asked, node)[component]
    bad = [item for item in judge(asked, node) if item.component == component and item.finding_class != "ok"]
    settled = {item.what for step in decision.steps for item in step.settles}
    # Every difference is a step's, or says that a person is to mend it; what a step settles is a difference.
    for item in bad:
        told_to_a_person = item.remedy == BY_HAND or item.what in ("service", "starts at boot")
        assert item.what in settled or told_to_a_person, item
    assert settled <= {item.what for item in bad}
    steps = [step for step in plan(asked, node).steps if step.component == component]
    assert [(step.action, step.waits is not None) for step in decision.steps] == [
        (step.action, step.pending) for step in steps if ": " not in step.action
    ]
    # What waits is told as pending by drift, plan and run; what no run mends is refused by it.
    host = Host({fact: actual, TransactionJournal: Journal(None, None, None, False)})
    with ctx_host.use(host):
        given_commands = commands(
            operation, host, default_runtime="nvidia", systemd_cgroup=True, nvidia=True, cdi=cdi,
            restart_allowed=allow != "nothing",
        )  # fmt: skip
    change = next((step for step in decision.steps if step.change is not None), None)
    masked = bool(host.refusals) and "is masked" in host.refusals[0]
    assert bool(host.refusals) == (decision.refusal is not None or masked)
    if change is not None:
        assert (given_commands != []) == (change.waits is None and not masked)
        waiting = {item.what for item in bad if item.finding_class is FindingClass.RESTART_PENDING}
        if change.waits is not None:
            assert {item.what for item in change.settles} - {"CRI plugin"} <= waiting
            assert host.noops == [f"restart pending: {change.waits}"]
    elif decision.refusal is None:
        assert given_commands == []
    if decision.refusal is not None:
        assert bad, "a run that refuses is no node that is as desired"


@given(actual=CONTAINERD, allow=ALLOW, cdi=st.sampled_from([None, True, False]))
def test_of_containerd_drift_plan_verdict_and_run_say_the_same(actual: Any, allow: str, cdi: bool | None) -> None:
    node = replace(GOOD, containerd=actual, docker=RIGHT)
    _agree("containerd", node, allow, cdi, containerd.configuration, ContainerdFact, actual)


@given(actual=DOCKER, allow=ALLOW, cdi=st.sampled_from([None, True, False]))
def test_of_docker_drift_plan_verdict_and_run_say_the_same(actual: Any, allow: str, cdi: bool | None) -> None:
    _agree("docker", replace(GOOD, docker=actual), allow, cdi, docker.configuration, DockerFact, actual)


@pytest.mark.parametrize(
    ("disturbs", "allowed", "workloads", "forbidden"),
    [
        ("restart", "nothing", 0, False),
        ("restart", "nothing", 1, True),
        ("reset", "restart", 0, False),
        ("reset", "restart", 1, True),
        ("reboot", "restart", 0, True),
        ("reboot", "reboot", 1, False),
        ("nothing", "nothing", 9, False),
    ],
)
def test_what_nobody_feels_is_done_but_for_a_boot(disturbs: str, allowed: str, workloads: int, forbidden: bool) -> None:
    assert is_forbidden(Disturbance[disturbs], Disturbance[allowed], workloads) is forbidden


def test_a_file_that_is_right_beside_a_merged_configuration_that_is_not_is_a_person_s_to_mend() -> None:
    node = replace(GOOD, containerd=replace(GOOD.containerd, default_runtime="runc"))
    asked = settings_from(DATA)
    (item,) = [item for item in judge(asked, node) if item.finding_class is not FindingClass.OK]
    assert item.what == "default runtime" and item.remedy == BY_HAND
    assert "the merged configuration is not" in str(item.cause)
    (step,) = plan(asked, node).steps
    assert step.pending and step.action.startswith("default runtime: ")


def test_a_drop_in_that_says_otherwise_is_told_by_drift_as_by_the_run_and_no_step_promises_to_mend_it(
    host: Host,
) -> None:
    drop_in = DropIn("/etc/containerd/conf.d/99-other.toml", ((CGROUP, "false"),), section=True)
    runc = replace(GOOD.containerd.runtimes[1], systemd_cgroup=False)
    actual = replace(GOOD.containerd, drop_ins=(drop_in,), runtimes=(GOOD.containerd.runtimes[0], runc))
    node, asked = replace(GOOD, containerd=actual), settings_from(DATA)
    causes = {item.what: item for item in judge(asked, node) if item.finding_class is not FindingClass.OK}
    item = causes["SystemdCgroup of runc"]
    assert item.cause == f"{drop_in.path} says {CGROUP} = false, not true" and item.remedy == BY_HAND
    assert all(step.pending for step in plan(asked, node).steps)
    host.readings[ContainerdFact] = actual
    told = commands(
        containerd.configuration, host, default_runtime="nvidia", systemd_cgroup=True, nvidia=True, restart_allowed=True
    )
    assert told == [] and drop_in.path in host.refusals[0]
