"""A runtime's files that say otherwise than the settings ask, while the daemon still runs by what it read before."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.comparison import BY_HAND
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.docker.editor import NVIDIA_RUNTIME, Daemon
from gpunode.components.docker.editor import render as render_docker
from gpunode.components.docker.state import Docker, parse_docker
from gpunode.node import Node
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.settings import Settings, settings_from
from tests.support.verify import DATA, GOOD, SETTINGS

pytestmark = pytest.mark.pure

FILE = "/etc/docker/daemon.json"
DOCKER = settings_from({**DATA, "docker": {"enabled": True}})
DOCKERED = replace(
    GOOD,
    docker=Docker(
        "26.1.5", "26.1.5", "/usr/sbin/dockerd", config_text=render_docker(None, "26.1.5", Daemon()), active=True,
        enabled=True, default_runtime="nvidia", runtimes=(("nvidia", NVIDIA_RUNTIME), ("runc", "runc")),
        cgroup_driver="systemd", cdi=False,
    ),
)  # fmt: skip


def told(settings: Settings, node: Node) -> list[Finding]:
    return [item for item in judge(settings, node) if item.finding_class is not FindingClass.OK]


def with_text(text: str | None, **changes: Any) -> Node:
    return replace(GOOD, containerd=replace(GOOD.containerd, config_text=text, **changes))


def test_containerd_s_file_that_would_be_written_anew_is_a_difference_before_the_daemon_reads_it() -> None:
    assert told(SETTINGS, with_text(render("oom_score = -999\n", "1.6.20", Runtimes()))) == []
    (item,) = told(SETTINGS, with_text(render(None, "1.6.20", Runtimes(systemd_cgroup=False))))
    assert (item.what, item.actual) == ("configuration files", "another text in /etc/containerd/config.toml")
    assert (item.finding_class, item.disruption) == (FindingClass.DRIFT, Disruption.restart)
    (step,) = plan(SETTINGS, with_text(render(None, "1.6.20", Runtimes(systemd_cgroup=False)))).steps
    assert (step.code, step.actual, step.pending) == ("containerd.configuration-files", item.actual, False)


def test_where_containers_would_feel_the_restart_it_waits() -> None:
    careful = settings_from({**DATA, "disruption": {"allow": "nothing"}})
    (item,) = told(careful, with_text("", shims=2))
    assert (item.finding_class, item.what) == (FindingClass.RESTART_PENDING, "configuration files")


def test_another_place_is_a_difference_too() -> None:
    elsewhere = settings_from({**DATA, "containerd": {"placement": "drop-in"}})
    (item,) = told(elsewhere, GOOD)
    assert item.what == "configuration files" and "conf.d" in str(item.actual)


@pytest.mark.parametrize(
    "settings, node",
    [
        (SETTINGS, with_text("version = [\n")),
        (DOCKER, replace(DOCKERED, docker=replace(DOCKERED.docker, config_text="{"))),
    ],
)
def test_one_that_no_run_can_edit_is_a_person_s_to_mend(settings: Settings, node: Node) -> None:
    (item,) = told(settings, node)
    assert (item.what, item.finding_class) == ("configuration files", FindingClass.ERROR)
    assert item.cause and item.remedy == BY_HAND
    (step,) = plan(settings, node).steps
    assert step.pending and step.component == item.component


def test_docker_s_file_that_somebody_removed_is_a_difference_while_the_daemon_still_runs_by_it() -> None:
    parsed = parse_docker(["binary=/usr/sbin/dockerd", "config=/etc/docker/daemon.json"])
    assert parsed.config_text == ""
    (item,) = told(DOCKER, replace(DOCKERED, docker=replace(DOCKERED.docker, config_text=parsed.config_text)))
    assert (item.finding_class, item.actual) == (FindingClass.DRIFT, f"another text in {FILE}")


def test_what_is_not_known_is_not_judged() -> None:
    assert told(SETTINGS, with_text(None)) == []
    assert told(DOCKER, replace(DOCKERED, docker=replace(DOCKERED.docker, config_text=None))) == []


def test_docker_s_file_that_a_hand_changed_is_a_difference_though_the_daemon_still_says_what_is_asked() -> None:
    assert told(DOCKER, DOCKERED) == []
    by_hand = json.dumps({**json.loads(str(DOCKERED.docker.config_text)), "default-runtime": "runc"})
    node = replace(DOCKERED, docker=replace(DOCKERED.docker, config_text=by_hand))
    (item,) = told(DOCKER, node)
    assert (item.component, item.what, item.actual) == ("docker", "configuration files", f"another text in {FILE}")
    (step,) = plan(DOCKER, node).steps
    assert (step.code, step.actual, step.pending) == ("docker.configuration-files", item.actual, False)
