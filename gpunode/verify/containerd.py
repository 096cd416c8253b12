"""Does containerd run, by the configuration that is asked for?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import RUN, compared
from gpunode.verify.subject import Subject


def containerd(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge containerd; a daemon that runs has to be restarted for what it is to do otherwise."""
    asked, containerd = settings.containerd, node.containerd
    found, active = containerd.version, containerd.active
    good = found is not None and (asked.version is None or versions.in_branch(found, asked.version))
    yield compared(
        "containerd", Subject.CONTAINERD_VERSION, found, asked.version or "any version", good, disturbs=_restart(node)
    )
    yield compared("containerd", Subject.SERVICE, "running" if active else "stopped", "running", active)
    at_boot = "yes" if containerd.enabled else "no"
    yield compared("containerd", Subject.CONTAINERD_AT_BOOT, at_boot, "yes", containerd.enabled)
    # Where the settings forbid a restart that containers would feel, the change is to come: it was not forgotten.
    waits = settings.disruption.allow == "nothing" and containerd.shims > 0
    for item in _runtimes(settings, node):
        if waits and item.finding_class is FindingClass.DRIFT:
            yield replace(
                item,
                finding_class=FindingClass.RESTART_PENDING,
                cause=f"{containerd.shims} containers run and disruption.allow is nothing",
                remedy="drain the node, or set disruption.allow = 'restart', and " + RUN,
            )
        else:
            yield item
    if active:
        plugin = containerd.cri_plugin
        yield compared("containerd", Subject.CRI_PLUGIN, plugin, "ok", plugin == "ok", disturbs=_restart(node))


def _restart(node: Node) -> Disturbance:
    return Disturbance.restart if node.containerd.active else Disturbance.nothing


def _runtimes(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the merged configuration, and whether the daemon runs by it."""
    asked, containerd = settings.containerd, node.containerd
    if containerd.stale:
        yield Finding(
            "containerd", FindingClass.RESTART_PENDING, Subject.RUNNING_CONFIGURATION,
            "older than its files", "the files'",
            cause="a configuration file was written after containerd started", remedy=RUN, disturbs=_restart(node),
        )  # fmt: skip
    yield compared(
        "containerd", Subject.DEFAULT_RUNTIME, containerd.default_runtime, asked.default_runtime,
        containerd.default_runtime == asked.default_runtime,
        cause="the merged configuration (`containerd config dump`) says otherwise", disturbs=_restart(node),
    )  # fmt: skip
    for name in ("runc", "nvidia") if settings.toolkit.enabled else ("runc",):
        runtime = containerd.runtime(name)
        value = None if runtime is None else str(runtime.systemd_cgroup).lower()
        wanted = str(asked.systemd_cgroup).lower()
        subject = Subject.SYSTEMD_CGROUP.of(name)
        yield compared("containerd", subject, value, wanted, value == wanted, disturbs=_restart(node))
