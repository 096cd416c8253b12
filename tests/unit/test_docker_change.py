"""How a restart of docker that waits is told on, and what is in no output; the rest is in tests/cases."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.components.runtimes.docker.state import parse_docker
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet.rollout.choice import left_out
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations.verify import verified
from gpunode.settings import settings_from
from tests.support.docker_change import RIGHT
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure


def test_the_file_s_text_is_in_no_output() -> None:
    found = parse_docker([f"text={base64.b64encode(b'hunter2').decode()}"])
    assert found.config_text == "hunter2" and "hunter2" not in str(found.to_json()) + repr(found)


@pytest.mark.parametrize(
    ("differs", "waits"),
    [
        ({"cgroup_driver": "cgroupfs", "default_runtime": "runc", "runtimes": ()}, True),
        ({"cgroup_driver": "cgroupfs", "live_restore": True}, False),
    ],
)
def test_a_restart_that_waits_is_pending_to_verdict_plan_and_rollout(
    differs: dict[str, Any], waits: bool, host: Host
) -> None:
    quiet = settings_from({**DATA, "docker": {"enabled": True, "cdi": False}, "disruption": {"allow": "nothing"}})
    node = replace(GOOD, docker=replace(RIGHT, **differs, containers=2))
    host.readings[NodeFact] = node
    assert commands(verified, host, settings=quiet) == [] and bool(host.refusals) != waits
    findings = judge(quiet, node)
    found = {item.disruption for item in findings if item.finding_class is FindingClass.RESTART_PENDING}
    assert found == ({Disruption.restart} if waits else set())
    assert [step.pending for step in plan(quiet, node).steps] == [waits]
    left = left_out(NodeReport("gpu-1", findings), everyone=False, allowed=Disruption.nothing)
    assert (left is not None and left.finding_class is FindingClass.RESTART_PENDING) == waits
