"""Does docker run, and say of itself what is asked for?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.disturbance import Disturbance
from gpunode.docker.change import effective, wanted
from gpunode.docker.editor import Daemon
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import RUN, compared
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
    running = "running" if there.active else "stopped"
    yield compared("docker", Subject.SERVICE, running, "running", there.active)
    yield compared("docker", Subject.STARTS_AT_BOOT, "yes" if there.enabled else "no", "yes", there.enabled)
    daemon = Daemon(asked.default_runtime, asked.systemd_cgroup, settings.toolkit.enabled, asked.cdi)
    said = effective(there)
    for key, value in wanted(daemon).items():
        disturbs = restart if key == "CgroupDriver" else Disturbance.nothing
        item = compared("docker", _SUBJECTS[key], said[key], value, said[key] == value, disturbs=disturbs)
        yield _pending(settings, node, item) if disturbs else item
    if asked.cdi is not None and there.cdi is not None:
        switch = {True: "on", False: "off"}
        item = compared(
            "docker", Subject.CDI, switch[there.cdi], switch[asked.cdi], there.cdi is asked.cdi, disturbs=restart
        )
        yield _pending(settings, node, item)


def _restart(node: Node) -> Disturbance:
    return Disturbance.restart if node.docker.active else Disturbance.nothing


def _pending(settings: Settings, node: Node, item: Finding) -> Finding:
    """Return what waits for a restart that the settings do not allow as pending: it was not forgotten."""
    there = node.docker
    waits = settings.disruption.allow == "nothing" and there.containers and not there.live_restore
    if not waits or item.finding_class is not FindingClass.DRIFT:
        return item
    return replace(
        item,
        finding_class=FindingClass.RESTART_PENDING,
        cause=f"{there.containers} containers run, live-restore is off and disruption.allow is nothing",
        remedy="drain the node, or set disruption.allow = 'restart', and " + RUN,
    )
