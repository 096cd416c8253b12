"""Does docker run, and say of itself what is asked for?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.disturbance import Disturbance
from gpunode.docker.change import act, change, effective, waits, wanted
from gpunode.docker.editor import Daemon, DaemonRefused
from gpunode.docker.state import Docker
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import RUN, compared, configuration
from gpunode.verify.service import RUNNING, boot_verdict, service_verdict
from gpunode.verify.subject import Subject

_SUBJECTS = {
    "DefaultRuntime": Subject.DEFAULT_RUNTIME,
    "CgroupDriver": Subject.CGROUP_DRIVER,
    "Runtime nvidia": Subject.RUNTIME_NVIDIA,
}


def docker(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge docker by what its daemon answers."""
    asked, there = settings.docker, node.docker
    found = there.daemon_version
    good = found is not None and (asked.version is None or versions.in_branch(found, asked.version))
    restart = _restart(node)
    yield compared("docker", Subject.VERSION, found, asked.version or "any version", good, disturbs=restart)
    service, boots = service_verdict("docker.service", there), boot_verdict("docker.service", there)
    good = service.found == RUNNING
    yield compared("docker", Subject.SERVICE, service.found, RUNNING, good, service.remedy, service.cause)
    good = there.enabled
    yield compared("docker", Subject.STARTS_AT_BOOT, boots.found, "yes", good, boots.remedy, boots.cause)
    daemon = Daemon(asked.default_runtime, asked.systemd_cgroup, settings.toolkit.enabled, asked.cdi)
    # One transaction brings all of it, and where one thing of it waits for a restart, so does the rest.
    by = act(there, daemon)
    to_come = waits(there, by, settings.disruption.allow != "nothing")
    disturbs = restart if by == "restart" else Disturbance.nothing
    answers = tuple(_answers(daemon, there, disturbs))
    for item in answers:
        yield _pending(there, item) if to_come and item.finding_class is FindingClass.DRIFT else item
    # Recorded facts have no text.
    if (
        found is not None
        and there.config_text is not None
        and all(item.finding_class is FindingClass.OK for item in answers)
    ):
        yield _file(daemon, there)


def _file(daemon: Daemon, there: Docker) -> Finding:
    """Judge whether a run would write its file anew, for all that the daemon says: it starts by the file next."""
    try:
        to_come = change(there, daemon)
    except DaemonRefused as refusal:
        return configuration("docker", None, f"{there.config_path}: {refusal}")
    writes = to_come is not None and bool(to_come.files)
    return configuration("docker", there.config_path if writes else None)


def _answers(daemon: Daemon, there: Docker, disturbs: Disturbance) -> Iterator[Finding]:
    """Compare what the daemon says of itself with what is asked of its file."""
    said = effective(there)
    for key, value in wanted(daemon).items():
        yield compared("docker", _SUBJECTS[key], said[key], value, said[key] == value, disturbs=disturbs)
    if daemon.cdi is not None and there.cdi is not None:
        switch = {True: "on", False: "off"}
        yield compared(
            "docker", Subject.CDI, switch[there.cdi], switch[daemon.cdi], there.cdi is daemon.cdi, disturbs=disturbs
        )


def _restart(node: Node) -> Disturbance:
    return Disturbance.restart if node.docker.active else Disturbance.nothing


def _pending(there: Docker, item: Finding) -> Finding:
    """Return what waits for a restart that the settings do not allow as pending: it was not forgotten."""
    return replace(
        item,
        finding_class=FindingClass.RESTART_PENDING,
        cause=f"{there.containers} containers run, live-restore is off and disruption.allow is nothing",
        remedy="drain the node, or set disruption.allow = 'restart', and " + RUN,
    )
