"""Does containerd run, by the configuration that is asked for?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.containerd.drop_in import PATH
from gpunode.containerd.editor import Runtimes
from gpunode.containerd.shadow import shadows
from gpunode.containerd.state import DEFAULT_TABLE
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.sysctl import KUBERNETES
from gpunode.verify.comparison import RUN, compared
from gpunode.verify.service import RUNNING, boot_verdict, service_verdict
from gpunode.verify.subject import Subject

_DEFAULT = "containerd.default_runtime_name"
_OTHERWISE = "the merged configuration (`containerd config dump`) says otherwise"
_DEFAULT_CAUSES = {
    DEFAULT_TABLE: "a deprecated table of that name has a runtime_type, and wins over default_runtime_name"
}


def containerd(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge containerd; a daemon that runs has to be restarted for what it is to do otherwise."""
    asked, containerd = settings.containerd, node.containerd
    found, active = containerd.version, containerd.active
    good = found is not None and (asked.version is None or versions.in_branch(found, asked.version))
    yield compared("containerd", Subject.VERSION, found, asked.version or "any version", good, disturbs=_restart(node))
    service, boots = service_verdict("containerd.service", containerd), boot_verdict("containerd.service", containerd)
    good = service.found == RUNNING
    yield compared("containerd", Subject.SERVICE, service.found, RUNNING, good, service.remedy, service.cause)
    good = containerd.enabled
    yield compared("containerd", Subject.STARTS_AT_BOOT, boots.found, "yes", good, boots.remedy, boots.cause)
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
    if asked.kubernetes_sysctls:
        yield from _sysctls(node)
    if active:
        plugin = containerd.cri_plugin
        yield compared("containerd", Subject.CRI_PLUGIN, plugin, "ok", plugin == "ok", disturbs=_restart(node))


def _restart(node: Node) -> Disturbance:
    return Disturbance.restart if node.containerd.active else Disturbance.nothing


def _runtimes(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the merged configuration, and whether the daemon runs by it."""
    asked, containerd = settings.containerd, node.containerd
    runtimes = Runtimes(asked.default_runtime, asked.systemd_cgroup, settings.toolkit.enabled, asked.cdi)
    by_drop_in = {item.key: str(item) for item in shadows(containerd, runtimes, containerd.drop_in(PATH) is not None)}
    if containerd.stale:
        yield Finding(
            "containerd", FindingClass.RESTART_PENDING, Subject.RUNNING_CONFIGURATION,
            "older than its files", "the files'",
            cause="a configuration file was written after containerd started", remedy=RUN, disturbs=_restart(node),
        )  # fmt: skip
    yield compared(
        "containerd", Subject.DEFAULT_RUNTIME, containerd.default_runtime, asked.default_runtime,
        containerd.default_runtime == asked.default_runtime,
        cause=by_drop_in.get(_DEFAULT, _DEFAULT_CAUSES.get(containerd.default_runtime or "", _OTHERWISE)),
        disturbs=_restart(node),
    )  # fmt: skip
    for name in ("runc", "nvidia") if settings.toolkit.enabled else ("runc",):
        runtime = containerd.runtime(name)
        value = None if runtime is None else str(runtime.systemd_cgroup).lower()
        wanted = str(asked.systemd_cgroup).lower()
        subject = Subject.SYSTEMD_CGROUP.of(name)
        cause = by_drop_in.get(f"containerd.runtimes.{name}.options.SystemdCgroup")
        yield compared("containerd", subject, value, wanted, value == wanted, cause=cause, disturbs=_restart(node))
    if asked.cdi is not None:
        yield compared(
            "containerd", Subject.CDI, _switch(containerd.enable_cdi), _switch(asked.cdi),
            containerd.enable_cdi is asked.cdi, cause=by_drop_in.get("enable_cdi"), disturbs=_restart(node),
        )  # fmt: skip


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _sysctls(node: Node) -> Iterator[Finding]:
    present = dict(node.sysctls.values)
    for name, wanted in KUBERNETES.items():
        found = present.get(name)
        yield compared("containerd", Subject.SYSCTL.of(name), found, wanted, found == wanted)
