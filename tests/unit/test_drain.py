"""What goes round a restart of a container runtime, and round nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyinfra.api import StringCommand

from facts.containerd import Containerd as ContainerdFact
from facts.docker import Docker as DockerFact
from operations import containerd, docker, drain
from tests.unit.simulated_host import Host, commands
from tests.unit.test_containerd_merged import TAKEN_FOR_GRANTED, right, said
from tests.unit.test_docker_change import RIGHT

pytestmark = pytest.mark.pure
ASKED: dict[str, Any] = {"default_runtime": "nvidia", "systemd_cgroup": True, "nvidia": True, "restart_allowed": True}
SPARE = said("1.7.24", right().replace(TAKEN_FOR_GRANTED, ""), right(), shims=2)


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Enter a drain, and return the reasons that it is given."""
    told: list[str] = []

    def before(reason: str) -> Iterator[StringCommand]:
        told.append(reason)
        yield StringCommand("cordon and drain")

    def after() -> Iterator[StringCommand]:
        yield StringCommand("uncordon")

    monkeypatch.setattr(drain, "_entered", [])
    drain.enter(drain.Drain(before, after))
    return told


def test_a_restart_of_containerd_stands_between_the_drain_and_its_end(host: Host, reasons: list[str]) -> None:
    host.readings[ContainerdFact] = replace(SPARE, loaded="other")
    before, restart, after = commands(containerd.configuration, host, **ASKED)
    assert (before, after) == ("cordon and drain", "uncordon")
    assert "gpunode-$name" in restart
    assert reasons == ["containerd is to be restarted"]


def test_a_restart_of_docker_is_drained_for_and_a_reload_is_not(host: Host, reasons: list[str]) -> None:
    host.readings[DockerFact] = replace(RIGHT, cgroup_driver="cgroupfs")
    assert len(commands(docker.configuration, host, **ASKED)) == 3
    host.readings[DockerFact] = replace(RIGHT, default_runtime="runc")
    assert len(commands(docker.configuration, host, **ASKED)) == 1
    assert reasons == ["docker is to be restarted"]


@pytest.mark.parametrize("restart_allowed", [True, False])
def test_nothing_is_drained_for_a_change_that_takes_no_restart(
    host: Host, reasons: list[str], restart_allowed: bool
) -> None:
    host.readings[ContainerdFact] = SPARE
    assert len(commands(containerd.configuration, host, **{**ASKED, "restart_allowed": restart_allowed})) == 1
    assert reasons == []


def test_nothing_is_drained_for_a_restart_that_waits_or_is_refused(host: Host, reasons: list[str]) -> None:
    host.readings[ContainerdFact] = replace(SPARE, loaded="other")
    assert commands(containerd.configuration, host, **{**ASKED, "restart_allowed": False}) == []
    host.readings[ContainerdFact] = replace(SPARE, config_text="= =")
    assert commands(containerd.configuration, host, **ASKED) == []
    assert len(host.refusals) == 1 and reasons == []


def test_a_node_stays_empty_where_the_restart_failed(host: Host, reasons: list[str]) -> None:
    """pyinfra asks a generator for nothing more after a command that failed."""
    host.readings[ContainerdFact] = replace(SPARE, loaded="other")
    steps = containerd.configuration._inner(**ASKED)
    done = [next(steps), next(steps)]
    steps.close()
    assert len(done) == 2 and reasons == ["containerd is to be restarted"]


def test_without_a_drain_the_restart_stands_alone(host: Host) -> None:
    host.readings[ContainerdFact] = replace(SPARE, loaded="other")
    assert len(commands(containerd.configuration, host, **ASKED)) == 1


def test_of_several_drains_the_last_is_the_innermost(reasons: list[str]) -> None:
    drain.enter(drain.Drain(lambda reason: iter(["inner before"]), lambda: iter(["inner after"])))
    found = [str(step) for step in drain.around("why", ["restart"])]
    assert found[1:4] == ["inner before", "restart", "inner after"] and len(found) == 5
