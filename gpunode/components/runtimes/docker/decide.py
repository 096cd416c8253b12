"""What is to be done about docker: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpunode.base import versions
from gpunode.base.comparison import DRIFT, RUN, by_hand, configuration, configuration_files, pending, unrecorded
from gpunode.base.decision import Decision, Step, bad, behind, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.docker.editor import render, tells_of_cdi
from gpunode.components.runtimes.docker.state import Docker
from gpunode.components.runtimes.runtime import (
    NVIDIA_RUNTIME,
    Act,
    RuntimeChange,
    Runtimes,
    WrittenFile,
    restart_of,
    runtime_finding,
)
from gpunode.components.runtimes.service import (
    MEND_BOOT,
    MEND_SERVICE,
    absent_refusal,
    masked_refusal,
    refused_start,
    running_steps,
    service_findings,
)

if TYPE_CHECKING:
    from gpunode.settings import Settings

# dockerd refuses to start with a flag beside the key of the file.
_FLAGS = {
    "--default-runtime": "default-runtime",
    "--add-runtime": "runtimes",
    "--exec-opt": "exec-opts",
    "--feature": "features",
}
# Docker's reference of dockerd: what a reload (SIGHUP) makes it read again. All else takes a restart.
_RELOADED = ("DefaultRuntime", "Runtime")


def wanted(desired: Runtimes) -> dict[str, str]:
    """Return what the daemon must say of itself."""
    found = {"DefaultRuntime": desired.default, "CgroupDriver": desired.manager}
    if desired.nvidia:
        found["Runtime nvidia"] = NVIDIA_RUNTIME
    return found


def effective(state: Docker) -> dict[str, str | None]:
    """Return what the daemon says of itself, by the keys of `wanted`."""
    return {
        "DefaultRuntime": state.default_runtime,
        "CgroupDriver": state.cgroup_driver,
        "Runtime nvidia": state.runtime("nvidia"),
    }


def change(state: Docker, desired: Runtimes) -> RuntimeChange | None:
    """Return what is to be changed, None where file and daemon are as desired; raise ConfigurationRefused.

    `state.daemon_version` must be known.
    """
    text = render(state.config_text, state.daemon_version or "", desired)
    writes = text != (state.config_text or "")
    differences = list(_differences(state, desired))
    if writes and (flags := [flag for flag in state.flags if flag in _FLAGS]):
        raise ConfigurationRefused(
            f"dockerd is started with {', '.join(flags)}, and does not start where the file says "
            f"{', '.join(_FLAGS[flag] for flag in flags)} as well. Remedy: take the flag out of its unit (or of "
            "/etc/default/docker)"
        )
    if not writes and (not differences or not state.active):
        return None
    files = (WrittenFile(state.config_path, text),) if writes else ()
    expected = [f"{key}={value}" for key, value in wanted(desired).items()]
    if desired.cdi is not None and all(
        tells_of_cdi(actual) for actual in (state.version, state.daemon_version) if actual
    ):
        expected.append(f"CDI={str(desired.cdi).lower()}")
    since = state.default_runtime or ""
    return RuntimeChange(files, text if writes else None, tuple(expected), act(state, desired), since)


def act(state: Docker, desired: Runtimes) -> Act:
    """Return what brings the daemon to what is desired."""
    keys = list(_differences(state, desired))
    if not state.active or not state.answers or not all(key.startswith(_RELOADED) for key in keys):
        return "restart"
    return "reload" if keys else "nothing"


def _differences(state: Docker, desired: Runtimes) -> Iterator[str]:
    """Yield the keys of which the daemon does not say what is desired."""
    said = effective(state)
    yield from (key for key, value in wanted(desired).items() if said[key] != value)
    if desired.cdi is not None and state.cdi is not None and state.cdi is not desired.cdi:
        yield "CDI"


_RESTARTS = "{containers} containers run, live-restore is off and disruption.allow is nothing"
SERVICE = runtime_finding("docker", "service", remedies=MEND_SERVICE, classes=DRIFT)
STARTS_AT_BOOT = runtime_finding("docker", "starts at boot", remedies=MEND_BOOT, classes=DRIFT)
VERSION = runtime_finding("docker", "version", _RESTARTS)
CDI = runtime_finding("docker", "CDI", _RESTARTS)
DEFAULT_RUNTIME = runtime_finding("docker", "default runtime", _RESTARTS)
CGROUP_DRIVER = runtime_finding("docker", "cgroup driver", _RESTARTS)
RUNTIME_NVIDIA = runtime_finding("docker", "runtime nvidia", _RESTARTS)
CONFIGURATION = configuration_files("docker")
_KEYS = {"DefaultRuntime": DEFAULT_RUNTIME, "CgroupDriver": CGROUP_DRIVER, "Runtime nvidia": RUNTIME_NVIDIA}
# Changes that need a restart come before those that need a reload.
_ORDER = tuple(each.code for each in (CGROUP_DRIVER, CDI, DEFAULT_RUNTIME, RUNTIME_NVIDIA))


@dataclass(frozen=True)
class Desired:
    """Hold what docker is to be, and what a change of it may disturb.

    version: a version or a branch; None: any
    installs: whether a run installs its packages
    """

    daemon: Runtimes
    allowed: Disruption = Disruption.restart
    version: str | None = None
    installs: bool = True


def desired_of(settings: Settings) -> Desired:
    """Return the docker that the settings describe: for the deploy, its operation, drift and plan."""
    own = settings.docker
    daemon = Runtimes(own.default_runtime, own.systemd_cgroup, settings.toolkit.enabled or None, own.cdi)
    return Desired(daemon, Disruption[settings.disruption.allow], own.version, own.source != "present")


def decide(desired: Desired, actual: Docker) -> Decision[RuntimeChange]:
    """Return what is to be done about docker, by what its daemon answers."""
    version, held = decide_version(desired, actual)
    good = not bad(version) or (held is not None and actual.daemon_version is not None)
    runs, starts = service_findings("docker.service", actual, SERVICE, STARTS_AT_BOOT)
    # Recorded facts have no text, and files are judged in the version that is to come.
    own = decide_configuration(desired, actual, is_forecast=not good or actual.config_text is None)
    steps: list[Step[RuntimeChange]] = []
    if bad(version):
        steps.append(Step("install docker", (version,), version.disruption or Disruption.nothing, held))
    refusal = own.refusal or refused_start("docker.service", runs, starts)
    if refusal is not None and any(step.waits is None for step in own.steps):
        own = Decision(tuple(by_hand(item, refusal) for item in own.findings), (), refusal)
    # Behind a change that is refused the run comes to nothing else.
    steps += [step for step in own.steps if step.settles]
    steps += running_steps(runs, starts, refusal)
    absent = None if actual.daemon_version else absent_refusal("docker", desired.installs, actual.binary)
    decision = Decision((version, runs, starts, *own.findings), tuple(steps), refusal)
    return decision if absent is None else replace(behind(decision, absent), refusal=absent)


def decide_version(desired: Desired, actual: Docker) -> tuple[Finding, str | None]:
    """Judge the version, and return why its packages wait: where they are upgraded, they restart the daemon."""
    found, rule = actual.daemon_version, desired.version
    good = found is not None and (rule is None or versions.in_branch(found, rule))
    version = VERSION.compared(found, rule or "any version", good, disruption=restart_of(actual))
    waits = _waits(desired, actual) if version.disruption else None
    return (version if waits is None else pending(version, waits)), waits


def decide_configuration(desired: Desired, actual: Docker, is_forecast: bool = False) -> Decision[RuntimeChange]:
    """Return what is to be done about the configuration of an installed docker, by which its operation goes.

    is_forecast: decide by what the daemon says alone; what becomes of its file is reported when that is known
    """
    answers = _answers(desired.daemon, actual)
    # One transaction brings all of it.
    waits = _waits(desired, actual) if act(actual, desired.daemon) == "restart" else None
    to_come, refusal = (None, None) if is_forecast else _to_come(desired.daemon, actual)
    changes = bool(bad(*answers)) if is_forecast else to_come is not None
    if changes and actual.masked and waits is None and refusal is None:
        refusal = masked_refusal("docker.service")
    files: tuple[Finding, ...] = ()
    if is_forecast:
        if actual.config_text is None and actual.daemon_version is not None and not bad(*answers):
            files = (unrecorded(CONFIGURATION),)
    elif not bad(*answers) and (actual.answers or not actual.active):
        # For all that the daemon says: it starts by the file next.
        writes = to_come is not None and bool(to_come.files)
        files = (configuration(CONFIGURATION, actual.config_path if writes else None, refusal),)
    if refusal is not None:
        return Decision((*(by_hand(item, refusal) for item in answers), *files), (), refusal)
    if waits is not None:
        answers, files = (tuple(pending(item, waits) for item in group) for group in (answers, files))
    steps = _steps(answers, files, actual, to_come)
    return Decision((*answers, *files), tuple(replace(step, waits=waits) for step in steps))


def _waits(desired: Desired, actual: Docker) -> str | None:
    """Return why a restart waits; None where it does not."""
    felt = 0 if actual.live_restore else actual.containers
    forbidden = is_forbidden(Disruption.restart, desired.allowed, felt)
    return _RESTARTS.format(containers=actual.containers) if forbidden else None


def _to_come(daemon: Runtimes, actual: Docker) -> tuple[RuntimeChange | None, str | None]:
    """Return the change of file and daemon, None where there is none; and why a run cannot make it."""
    try:
        to_come = change(actual, daemon)
    except ConfigurationRefused as refusal:
        return None, f"{actual.config_path}: {refusal}"
    if actual.active and not actual.answers:
        return to_come, (
            "docker runs, but `docker info` gives no answer; nothing was changed"
            f". Remedy: look at `journalctl -u docker` on the node, and {RUN}"
        )
    return to_come, None


def _steps(
    answers: tuple[Finding, ...], files: tuple[Finding, ...], actual: Docker, to_come: RuntimeChange | None
) -> Iterator[Step[RuntimeChange]]:
    """Yield the one step that settles all of it: one transaction brings file and daemon to what is desired."""
    settled = (*sorted(bad(*answers), key=lambda item: _ORDER.index(item.code)), *bad(*files))
    if not settled:
        # A file that nobody judges (it was not there) is written all the same.
        if to_come is not None:
            yield Step("write its configuration file", (), Disruption.nothing, change=to_come)
        return
    action = "write its configuration file"
    if bad(*answers):
        restart = settled[0].code in _ORDER[:2]
        how = (" and restart it" if restart else " and have it read them") if actual.active else ""
        action = f"bring its runtimes to what is asked{how}"
    yield Step(action, settled, settled[0].disruption or Disruption.nothing, change=to_come)


def _answers(daemon: Runtimes, actual: Docker) -> tuple[Finding, ...]:
    """Compare what the daemon says of itself with what is desired of its file."""
    disruption = restart_of(actual) if act(actual, daemon) == "restart" else Disruption.nothing
    said, remedy = effective(actual), f"look at `docker info` and `journalctl -u docker` on the node, and {RUN}"
    found = [
        _KEYS[key].not_known(value, "docker runs, and `docker info` gives no answer", remedy)
        if actual.active and not actual.answers
        else _KEYS[key].compared(said[key], value, said[key] == value, disruption=disruption)
        for key, value in wanted(daemon).items()
    ]
    if daemon.cdi is not None and actual.cdi is not None:
        switch, good = {True: "on", False: "off"}, actual.cdi is daemon.cdi
        found.append(CDI.compared(switch[actual.cdi], switch[daemon.cdi], good, disruption=disruption))
    return tuple(found)
