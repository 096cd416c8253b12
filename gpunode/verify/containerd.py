"""Does containerd run, by the configuration that is asked for?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode import versions
from gpunode.containerd.change import change
from gpunode.containerd.drop_in import PATH
from gpunode.containerd.editor import Runtimes
from gpunode.containerd.merged import restarts
from gpunode.containerd.shadow import shadows
from gpunode.containerd.state import DEFAULT_TABLE
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.sysctl import KUBERNETES
from gpunode.toml_edit import ConfigurationRefused
from gpunode.verify.comparison import RUN, compared, configuration
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
    runtimes = tuple(_runtimes(settings, node))
    for item in runtimes:
        yield _pending(item, node) if waits and item.finding_class is FindingClass.DRIFT else item
    if asked.kubernetes_sysctls:
        yield from _sysctls(node)
    # What the merged configuration lacks is told already; recorded facts have no text.
    if (
        found is not None
        and containerd.config_text is not None
        and all(item.finding_class is FindingClass.OK for item in runtimes)
    ):
        yield _files(settings, node, waits)
    if active:
        plugin = containerd.cri_plugin
        yield compared("containerd", Subject.CRI_PLUGIN, plugin, "ok", plugin == "ok", disturbs=_restart(node))


def _pending(item: Finding, node: Node) -> Finding:
    """Return what waits for a restart that the settings do not allow as pending: it was not forgotten."""
    return replace(
        item,
        finding_class=FindingClass.RESTART_PENDING,
        cause=f"{node.containerd.shims} containers run and disruption.allow is nothing",
        remedy="drain the node, or set disruption.allow = 'restart', and " + RUN,
    )


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


def _files(settings: Settings, node: Node, waits: bool) -> Finding:
    """Judge whether a run would write its configuration anew, for all that the merged one says."""
    asked, containerd = settings.containerd, node.containerd
    runtimes = Runtimes(asked.default_runtime, asked.systemd_cgroup, settings.toolkit.enabled, asked.cdi)
    try:
        to_come = change(containerd, runtimes, asked.placement)
    except ConfigurationRefused as refusal:
        return configuration("containerd", None, f"{containerd.config_path}: {refusal}")
    if to_come is None or not to_come.files:
        return configuration("containerd", None)
    felt = restarts(containerd, to_come)
    item = configuration(
        "containerd", ", ".join(file.path for file in to_come.files),
        disturbs=_restart(node) if felt else Disturbance.nothing,
    )  # fmt: skip
    return _pending(item, node) if waits and felt else item


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _sysctls(node: Node) -> Iterator[Finding]:
    present = dict(node.sysctls.values)
    for name, wanted in KUBERNETES.items():
        found = present.get(name)
        yield compared("containerd", Subject.SYSCTL.of(name), found, wanted, found == wanted)
