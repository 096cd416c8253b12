"""What is to become of daemon.json, and what the daemon needs for it."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.components.docker.change import change
from gpunode.components.docker.editor import NVIDIA_RUNTIME, Daemon, DaemonRefused
from gpunode.components.docker.state import Docker, parse_docker
from gpunode.facts.docker import Docker as DockerFact
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet.rollout.choice import left_out
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import docker
from gpunode.operations.verify import verified
from gpunode.settings import SettingsError, settings_from
from tests.support.docker_change import RIGHT
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure
# What the run names that leaves a restart of Docker pending.
PENDING = ("restart pending", "2 containers", "live-restore", "disruption.allow", "nothing")
ASKED: dict[str, Any] = {"default_runtime": "nvidia", "systemd_cgroup": True, "nvidia": True, "restart_allowed": True}


@pytest.mark.parametrize(
    ("differs", "asked", "act"),
    [
        ({"default_runtime": "runc"}, Daemon(), "reload"),
        ({"runtimes": ()}, Daemon(), "reload"),
        ({"cgroup_driver": "cgroupfs"}, Daemon(), "restart"),
        ({"cgroup_driver": "cgroupfs", "default_runtime": "runc"}, Daemon(), "restart"),
        ({"cdi": False}, Daemon(cdi=True), "restart"),
        ({"config_text": "{}"}, Daemon(), "nothing"),
        ({"active": False, "default_runtime": None, "config_text": None}, Daemon(), "restart"),
    ],
)
def test_runtimes_take_a_reload_and_the_cgroup_driver_and_cdi_a_restart(
    differs: dict[str, Any], asked: Daemon, act: str
) -> None:
    wanted = change(replace(RIGHT, **differs), asked)
    assert wanted is not None and wanted.act == act
    assert f"Runtime nvidia={NVIDIA_RUNTIME}" in wanted.expected


@pytest.mark.parametrize(
    ("version", "asked", "expected"),
    [
        ("26.1.5", True, ["CDI=true"]),
        ("26.1.5", False, ["CDI=false"]),
        ("26.1.5", None, []),
        # None that tells: neither the daemon nor a client of another version.
        ("20.10.24", False, []),
    ],
)
def test_what_is_asked_of_cdi_has_to_be_said_by_the_daemon_where_it_tells(
    version: str, asked: bool | None, expected: list[str]
) -> None:
    state = replace(RIGHT, cgroup_driver="cgroupfs", daemon_version="26.1.5", version=version)
    wanted = change(state, Daemon(cdi=asked))
    assert wanted is not None
    assert [line for line in wanted.expected if line.startswith("CDI")] == expected


def test_a_docker_that_is_right_is_left_alone(host: Host) -> None:
    assert change(RIGHT, Daemon()) is None
    host.readings[DockerFact] = RIGHT
    assert (commands(docker.configuration, host, **ASKED), host.refusals) == ([], [])


def test_a_flag_of_the_command_line_that_the_file_would_repeat_is_refused() -> None:
    with pytest.raises(DaemonRefused, match=r"started with --exec-opt, .* exec-opts as well"):
        change(replace(RIGHT, config_text=None, flags=("--exec-opt",)), Daemon())


@pytest.mark.parametrize(("live_restore", "waits"), [(False, True), (True, False)])
def test_a_restart_that_would_end_containers_waits_and_one_that_live_restore_covers_does_not(
    live_restore: bool, waits: bool, host: Host
) -> None:
    host.readings[DockerFact] = replace(RIGHT, cgroup_driver="cgroupfs", containers=2, live_restore=live_restore)
    found = commands(docker.configuration, host, **{**ASKED, "restart_allowed": False})
    assert (found == []) is waits
    assert [unnamed(noop, *PENDING) for noop in host.noops] == ([[]] if waits else [])
    # A reload is felt by no container.
    host.readings[DockerFact] = replace(RIGHT, default_runtime="runc", containers=2)
    assert len(commands(docker.configuration, host, **{**ASKED, "restart_allowed": False})) == 1


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (replace(RIGHT, daemon_version=None), "/usr/sbin/dockerd, which the unit docker.service runs, is missing"),
        (Docker(None), "docker is not installed"),
        (replace(RIGHT, default_runtime=None), "`docker info` gives no answer"),
        (replace(RIGHT, config_text="{"), "/etc/docker/daemon.json: the file is not JSON"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_reason(state: Docker, reason: str, host: Host) -> None:
    host.readings[DockerFact] = state
    assert commands(docker.configuration, host, **ASKED) == []
    assert reason in host.refusals[0]


def test_what_the_daemon_answers_is_read_and_the_file_s_text_is_in_no_output() -> None:
    info = {
        "ServerVersion": "26.1.5", "DefaultRuntime": "nvidia", "CgroupDriver": "systemd", "ContainersRunning": 3,
        "Runtimes": {"runc": {"path": "runc"}, "nvidia": {"path": NVIDIA_RUNTIME}}, "LiveRestoreEnabled": True,
        "CDISpecDirs": ["/etc/cdi"],
    }  # fmt: skip
    encoded = base64.b64encode(json.dumps(info).encode()).decode()
    secret = base64.b64encode(b'{"proxies": "hunter2"}').decode()
    lines = [
        "docker=Docker version 26.1.5, build a72d7cd", "dockerd=Docker version 26.1.5, build 411e817",
        "ActiveState=active", "UnitFileState=enabled", "config=/srv/daemon.json", f"text={secret}", f"info={encoded}",
        "flag=--exec-opt",
    ]  # fmt: skip
    found = parse_docker(lines)
    assert (found.daemon_version, found.default_runtime, found.cgroup_driver, found.cdi) == (
        "26.1.5", "nvidia", "systemd", True,
    )  # fmt: skip
    assert (found.runtime("nvidia"), found.live_restore, found.containers) == (NVIDIA_RUNTIME, True, 3)
    assert found.flags == ("--exec-opt",)
    assert "hunter2" not in str(found.to_json()) + repr(found)
    # The client alone, with no daemon behind it.
    silent = base64.b64encode(b'{"ServerVersion": "", "DefaultRuntime": ""}').decode()
    assert not parse_docker([f"info={silent}"]).answers


SETTINGS = settings_from({
    "driver": {"version": "580.95.05"}, "toolkit": {"version": "1.17.8"}, "docker": {"enabled": True},
})  # fmt: skip


@pytest.mark.parametrize(
    ("differs", "what", "disruption"),
    [
        ({"default_runtime": "runc"}, "default runtime", "nothing"),
        ({"runtimes": ()}, "runtime nvidia", "nothing"),
        ({"cgroup_driver": "cgroupfs"}, "cgroup driver", "restart"),
        ({"active": False}, "service", "nothing"),
        ({"enabled": False}, "starts at boot", "nothing"),
        ({"daemon_version": None}, "version", "restart"),
    ],
)
def test_verdict_and_plan_name_what_docker_lacks_and_what_that_disturbs(
    differs: dict[str, Any], what: str, disruption: str
) -> None:
    assert not [item for item in judge(SETTINGS, replace(GOOD, docker=RIGHT)) if item.finding_class != "ok"]
    node = replace(GOOD, docker=replace(RIGHT, **differs))
    (bad,) = [item for item in judge(SETTINGS, node) if item.finding_class is not FindingClass.OK]
    assert (bad.component, bad.what) == ("docker", what)
    (step,) = plan(SETTINGS, node).steps
    assert (step.component, step.disruption.name) == ("docker", disruption)


QUIET = settings_from({
    "driver": {"version": "580.95.05"}, "toolkit": {"version": "1.17.8"}, "docker": {"enabled": True, "cdi": False},
    "disruption": {"allow": "nothing"},
})  # fmt: skip


@pytest.mark.parametrize(
    "differs",
    [
        {"cgroup_driver": "cgroupfs"},
        {"cgroup_driver": "cgroupfs", "default_runtime": "runc", "runtimes": ()},
        {"cdi": True, "default_runtime": "runc"},
    ],
)
def test_all_that_comes_with_a_restart_that_waits_is_pending_to_verdict_plan_and_rollout_as_to_the_run(
    differs: dict[str, Any], host: Host
) -> None:
    node = replace(GOOD, docker=replace(RIGHT, **differs, containers=2))
    host.readings |= {DockerFact: node.docker, NodeFact: node}
    assert commands(docker.configuration, host, **{**ASKED, "restart_allowed": False, "cdi": False}) == []
    (noop,) = host.noops
    assert unnamed(noop, *PENDING) == []
    assert commands(verified, host, settings=QUIET) == [] and not host.refusals
    findings = judge(QUIET, node)
    bad = [item for item in findings if item.finding_class is not FindingClass.OK]
    assert len(bad) == len(differs)
    assert {(item.finding_class, item.disruption) for item in bad} == {
        (FindingClass.RESTART_PENDING, Disruption.restart)
    }
    (step,) = plan(QUIET, node).steps
    assert step.pending and step.disruption is Disruption.restart
    left = left_out(NodeReport("gpu-1", findings), everyone=False, allowed=Disruption.nothing)
    assert left is not None and left.finding_class is FindingClass.RESTART_PENDING


@pytest.mark.parametrize(
    "differs",
    [
        # A reload is enough; live-restore keeps the containers; there are none.
        {"default_runtime": "runc", "containers": 2},
        {"default_runtime": "runc", "cgroup_driver": "cgroupfs", "containers": 2, "live_restore": True},
        {"default_runtime": "runc", "cgroup_driver": "cgroupfs"},
    ],
)
def test_what_no_container_of_docker_s_feels_is_drift_that_the_run_mends(differs: dict[str, Any], host: Host) -> None:
    node = replace(GOOD, docker=replace(RIGHT, **differs))
    host.readings[DockerFact] = node.docker
    assert len(commands(docker.configuration, host, **{**ASKED, "restart_allowed": False, "cdi": False})) == 1
    findings = judge(QUIET, node)
    assert {item.finding_class for item in findings} == {FindingClass.OK, FindingClass.DRIFT}
    assert not [step for step in plan(QUIET, node).steps if step.pending]
    assert left_out(NodeReport("gpu-1", findings), everyone=False, allowed=Disruption.nothing) is None


@pytest.mark.parametrize(
    ("data", "key"),
    [
        ({"docker": {"enabled": True}, "toolkit": {"enabled": False}}, "docker.default_runtime"),
        ({"docker": {"enabled": True, "source": "docker-repository"}}, "docker.source"),
        ({"docker": {"enabled": True, "source": "present", "version": "26.1.5"}}, "docker.version"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(data: dict[str, Any], key: str) -> None:
    with pytest.raises(SettingsError, match=key):
        settings_from({"containerd": {"default_runtime": "runc"}, **data})
