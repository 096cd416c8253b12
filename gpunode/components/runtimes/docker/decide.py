"""The decision about docker: every comparison of actual with desired, and the steps that remove the differences."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpunode.base import versions
from gpunode.base.decision import Decision
from gpunode.base.disruption import Disruption
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.docker.editor import CDI_SINCE, render
from gpunode.components.runtimes.docker.state import Docker
from gpunode.components.runtimes.judge import Desired, RuntimeFindings, RuntimeJudge
from gpunode.components.runtimes.runtime import (
    NVIDIA_RUNTIME,
    Answers,
    RuntimeChange,
    Runtimes,
    WrittenFile,
    runtime_finding,
)

if TYPE_CHECKING:
    from gpunode.settings import Settings

# dockerd refuses to start with a flag and the key of the file that means the same.
_FLAGS = {
    "--default-runtime": "default-runtime",
    "--add-runtime": "runtimes",
    "--exec-opt": "exec-opts",
    "--feature": "features",
}
# Docker's reference of dockerd: what a reload (SIGHUP) makes it read again. All else takes a restart.
_RELOADED = ("DefaultRuntime", "Runtime nvidia")
_RESTARTS = "{containers} containers run, live-restore is off and disruption.allow is nothing"
FINDINGS = RuntimeFindings("docker", _RESTARTS, silent="docker runs, and `docker info` gives no answer")
# What `docker info` answers -> the finding about it.
VALUES = {
    "DefaultRuntime": runtime_finding("docker", "default runtime", _RESTARTS),
    "CgroupDriver": runtime_finding("docker", "cgroup driver", _RESTARTS),
    "Runtime nvidia": runtime_finding("docker", "runtime nvidia", _RESTARTS),
    "CDI": runtime_finding("docker", "CDI", _RESTARTS),
}


def desired_of(settings: Settings) -> Desired:
    """Return the docker that the settings describe: for the deploy, its operation, drift and plan."""
    own = settings.docker
    runtimes = Runtimes(own.default_runtime, own.systemd_cgroup, settings.toolkit.enabled or None, own.cdi)
    return Desired(runtimes, Disruption[settings.disruption.allow], own.version, own.source != "present")


def judge_of(desired: Desired, actual: Docker) -> RuntimeJudge:
    """Return the judge of one node's docker."""
    containers, has_texts = 0 if actual.live_restore else actual.containers, actual.config_text is not None
    return RuntimeJudge(FINDINGS, desired, actual, actual.daemon_version, actual.binary, containers, has_texts)


def decide(desired: Desired, actual: Docker) -> Decision[RuntimeChange]:
    """Return the decision about docker: its package, its configuration and its service."""
    judge = judge_of(desired, actual)
    return judge.component(decide_configuration(desired, actual, judge.is_forecast))


def decide_configuration(desired: Desired, actual: Docker, is_forecast: bool = False) -> Decision[RuntimeChange]:
    """Return the decision about the configuration of an installed docker, which its operation carries out.

    is_forecast: decide by the daemon's answers alone
    """
    runtimes = desired.runtimes
    answers, change = answers_of(actual, runtimes, actual.cdi is not None), partial(needed_change, actual, runtimes)
    return judge_of(desired, actual).by_answers(VALUES, answers, change, is_forecast)


def answers_of(actual: Docker, desired: Runtimes, reports_cdi: bool) -> Answers:
    """Return what `docker info` answers, and must answer; reports_cdi: whether it answers CDI."""
    cdi, desired_cdi = (None if each is None else str(each).lower() for each in (actual.cdi, desired.cdi))
    values = {
        "DefaultRuntime": (desired.default, actual.default_runtime),
        "CgroupDriver": (desired.manager, actual.cgroup_driver),
        "Runtime nvidia": (NVIDIA_RUNTIME if desired.nvidia else None, dict(actual.runtimes).get("nvidia")),
        "CDI": (desired_cdi if reports_cdi else None, cdi),
    }
    return Answers(values, actual.active, _RELOADED)


def needed_change(state: Docker, desired: Runtimes) -> RuntimeChange | None:
    """Return the change that file or daemon need; None where they are as desired.

    Raise ConfigurationRefused where the file cannot be edited. `state.daemon_version` must be known.
    """
    path, before = state.config_path, state.config_text or ""
    try:
        text = render(state.config_text, state.daemon_version or "", desired)
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{path}: {refusal}") from refusal
    if text != before and (flags := [flag for flag in state.flags if flag in _FLAGS]):
        raise ConfigurationRefused(
            f"{path}: dockerd is started with {', '.join(flags)}, and does not start where the file says "
            f"{', '.join(_FLAGS[flag] for flag in flags)} as well. Remedy: take the flag out of its unit (or of "
            "/etc/default/docker)"
        )
    # An older client does not print CDI, and an older daemon does not report it.
    programs = [versions.major_minor(each) for each in (state.version, state.daemon_version) if each]
    reports_cdi = all(versions.at_least(each, CDI_SINCE) for each in programs)
    act = answers_of(state, desired, state.cdi is not None).act
    return answers_of(state, desired, reports_cdi).change(WrittenFile(path, text), before, act)
