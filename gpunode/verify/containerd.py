"""Does containerd run, by the configuration that is asked for?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import RUN, compared


def containerd(settings: Settings, node: Node) -> Iterator[Finding]:
    asked, containerd = settings.containerd, node.containerd
    found = containerd.version
    good = found is not None and (asked.version is None or versions.in_branch(found, asked.version))
    yield compared("containerd", "version", found, asked.version or "any version", good)
    yield compared("containerd", "service", "running" if containerd.active else "stopped", "running", containerd.active)
    yield compared("containerd", "starts at boot", "yes" if containerd.enabled else "no", "yes", containerd.enabled)
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
    if containerd.active:
        yield compared("containerd", "CRI plugin", containerd.cri_plugin, "ok", containerd.cri_plugin == "ok")


def _runtimes(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the merged configuration, and whether the daemon runs by it."""
    asked, containerd = settings.containerd, node.containerd
    if containerd.stale:
        yield Finding(
            "containerd", FindingClass.RESTART_PENDING, "running configuration", "older than its files", "the files'",
            cause="a configuration file was written after containerd started", remedy=RUN,
        )  # fmt: skip
    yield compared(
        "containerd", "default runtime", containerd.default_runtime, asked.default_runtime,
        containerd.default_runtime == asked.default_runtime,
        cause="the merged configuration (`containerd config dump`) says otherwise",
    )  # fmt: skip
    for name in ("runc", "nvidia") if settings.toolkit.enabled else ("runc",):
        runtime = containerd.runtime(name)
        value = None if runtime is None else str(runtime.systemd_cgroup).lower()
        wanted = str(asked.systemd_cgroup).lower()
        yield compared("containerd", f"SystemdCgroup of {name}", value, wanted, value == wanted)
