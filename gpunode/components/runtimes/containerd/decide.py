"""The decision about containerd: every comparison of actual with desired, and the steps that remove the differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpunode.base import versions
from gpunode.base.comparison import AS_DESIRED, RUN, by_hand, pending, unrecorded
from gpunode.base.decision import Decision, Step, bad, behind
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.containerd import findings
from gpunode.components.runtimes.containerd.change import Placement, needed_change, placement_of
from gpunode.components.runtimes.containerd.editor import cdi_option
from gpunode.components.runtimes.containerd.merged import (
    DEFAULT_RUNTIME,
    differing,
    needs_restart,
    overrides,
    systemd_cgroup_of,
)
from gpunode.components.runtimes.containerd.source import UNIT
from gpunode.components.runtimes.containerd.state import DEFAULT_TABLE, Containerd
from gpunode.components.runtimes.runtime import RuntimeChange, Runtimes, blocked_reason, restart_of
from gpunode.components.runtimes.service import (
    absent_refusal,
    masked_refusal,
    refused_start,
    running_steps,
    service_findings,
)
from gpunode.system.kernel import KUBERNETES, KubernetesSysctls

if TYPE_CHECKING:
    from gpunode.settings import Settings

# Source of the settings -> its packages; none where containerd is installed already.
PACKAGES = {"distribution": ("containerd",), "docker-repository": ("containerd.io",)}


@dataclass(frozen=True)
class Desired:
    """The desired containerd of one node.

    allowed: how much a change may disturb
    version: a version or a branch; None: any
    packages: the packages that install it; none where it is installed already
    sysctls: whether the kernel settings that Kubernetes needs are part of it
    unit: the unit that runs it
    """

    runtimes: Runtimes = field(default_factory=Runtimes)
    placement: Placement = "auto"
    allowed: Disruption = Disruption.restart
    version: str | None = None
    packages: tuple[str, ...] = ()
    sysctls: bool = False
    unit: str = UNIT


def desired_of(settings: Settings) -> Desired:
    """Return the containerd that the settings describe: for the deploy, its operation, drift, plan and preflight."""
    own = settings.containerd
    runtimes = Runtimes(own.default_runtime, own.systemd_cgroup, settings.toolkit.enabled or None, own.cdi)
    allowed, packages = Disruption[settings.disruption.allow], PACKAGES.get(own.source, ())
    return Desired(runtimes, own.placement, allowed, own.version, packages, own.kubernetes_sysctls, own.unit)


def decide(desired: Desired, actual: Containerd, sysctls: KubernetesSysctls) -> Decision[RuntimeChange]:
    """Return the decision about containerd: its package, its configuration, its service and its kernel settings."""
    version, blocked = decide_version(desired, actual)
    runs, starts = service_findings(desired.unit, actual, findings.SERVICE, findings.STARTS_AT_BOOT)
    kernel = tuple(_sysctls(sysctls)) if desired.sysctls else ()
    stays = not bad(version) or (blocked is not None and actual.version is not None)
    # Recorded facts have no texts of files, and an upgrade may bring a version that needs other texts.
    configured = (decide_configuration if stays and actual.config_text is not None else _forecast)(desired, actual)
    refusal = configured.refusal or refused_start(desired.unit, runs, starts)
    if refusal is not None and any(step.waits is None for step in configured.steps):
        configured = Decision(_as_manual(configured.findings, refusal, {}))
    steps: list[Step[RuntimeChange]] = []
    if bad(version):
        steps.append(Step("install containerd", (version,), version.disruption or Disruption.nothing, blocked))
    steps += configured.steps
    if missing := bad(*kernel):
        steps.append(Step("set what Kubernetes needs of the kernel", missing, Disruption.nothing))
    # A run ends at a refused change, before it starts anything.
    steps += running_steps(runs, starts, refusal)
    decision = Decision((version, runs, starts, *kernel, *configured.findings), tuple(steps), refusal)
    absent = None if actual.version else absent_refusal("containerd", bool(desired.packages), actual.binary)
    if absent is None:
        return decision
    # A run sets the kernel settings before it comes to the daemon.
    return replace(behind(decision, absent, lambda step: not set(step.settles) & set(kernel)), refusal=absent)


def decide_version(desired: Desired, actual: Containerd) -> tuple[Finding, str | None]:
    """Compare the version, and return why its packages are not upgraded now: an upgrade restarts the daemon."""
    rule = desired.version
    good = actual.version is not None and (rule is None or versions.in_branch(actual.version, rule))
    version = findings.VERSION.compared(actual.version, rule or "any version", good, disruption=restart_of(actual))
    blocked = blocked_reason(desired.allowed, actual.shims) if version.disruption else None
    return (version if blocked is None else pending(version, blocked)), blocked


def decide_configuration(desired: Desired, actual: Containerd) -> Decision[RuntimeChange]:
    """Return the decision about the configuration of an installed containerd, which its operation carries out."""
    by_drop_in = _by_drop_in(desired, actual)
    runtimes, plugin = tuple(_runtimes(desired.runtimes, actual, by_drop_in)), tuple(_plugin(actual))
    change, refusal, editable = None, None, True
    try:
        change, refusal = _change(desired, actual)
    except ConfigurationRefused as error:
        refusal, editable = f"{actual.config_path}: {error}", False
    restart = change is not None and needs_restart(actual, change)
    blocked = blocked_reason(desired.allowed, actual.shims)
    if change is not None and actual.masked and refusal is None and not (restart and blocked):
        refusal = masked_refusal(desired.unit)
    files: tuple[Finding, ...] = ()
    if not bad(*runtimes):
        files = (_files(actual, change, restart),)
        known = all(item.finding_class is not FindingClass.NOT_KNOWN for item in (*runtimes, *plugin))
        if refusal is not None and known and not (editable and bad(*files, *plugin)):
            # Without this finding, drift would pass a node that every run refuses.
            files = (findings.CONFIGURATION_FILES.finding(FindingClass.ERROR, "not editable by a run", AS_DESIRED),)
    judged = (*runtimes, *files, *plugin)
    if refusal is not None:
        return Decision(_as_manual(judged, refusal, by_drop_in), (), refusal)
    if restart and blocked:
        return _decision(judged, actual, change, blocked)
    if change is not None and blocked:
        # Running containers are not disturbed where no restart is needed.
        change = replace(change, act="nothing")
    return _decision(judged, actual, change)


def _forecast(desired: Desired, actual: Containerd) -> Decision[RuntimeChange]:
    """Return the decision by the merged configuration alone, where the texts of the files are not known yet."""
    by_drop_in = _by_drop_in(desired, actual)
    runtimes = tuple(_runtimes(desired.runtimes, actual, by_drop_in))
    is_unrecorded = actual.config_text is None and actual.version is not None
    files = (unrecorded(findings.CONFIGURATION_FILES),) if is_unrecorded and not bad(*runtimes) else ()
    wrong = next(differing(actual, desired.runtimes), None)
    if wrong is not None and all(item.finding_class is FindingClass.OK for item in runtimes):
        # The program of the nvidia runtime has no finding of its own.
        cause = by_drop_in.get(wrong.key) or findings.VALUES_DIFFER.format(value=wrong)
        item = findings.CONFIGURATION_FILES.compared("other values", AS_DESIRED, False, cause=cause)
        files = (replace(item, disruption=restart_of(actual)),)
    judged = (*runtimes, *files, *_plugin(actual))
    return _decision(judged, actual, None, blocked_reason(desired.allowed, actual.shims))


def _as_manual(judged: tuple[Finding, ...], refusal: str, by_drop_in: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the findings as for a person to mend; a cause that names the overriding drop-in is kept."""
    causes = {cause: f"{cause}. Remedy: correct or remove that drop-in" for cause in by_drop_in.values()}
    return tuple(by_hand(item, causes.get(item.cause or "", refusal)) for item in judged)


def _by_drop_in(desired: Desired, actual: Containerd) -> dict[str, str]:
    """Return key -> the drop-in of another program that overrides it, and its value."""
    found = overrides(actual, desired.runtimes, actual.drop_in(actual.own_drop_in) is not None)
    return {item.key: str(item) for item in found}


def _change(desired: Desired, actual: Containerd) -> tuple[RuntimeChange | None, str | None]:
    """Return the change of files and daemon, None where there is none; and why a run cannot make it.

    Raise ConfigurationRefused where the files cannot be edited.
    """
    change = needed_change(actual, desired.runtimes, desired.placement)
    in_drop_in = placement_of(actual, desired.runtimes, desired.placement) == "drop-in"
    writes = change is not None and bool(change.files)
    if overriding := [*overrides(actual, desired.runtimes, in_drop_in)]:
        return change, (
            f"a drop-in overrides what {actual.config_path} sets: {'; '.join(map(str, overriding))}"
            f". Remedy: correct that drop-in, or remove it (and its import, where it is imported by name), and {RUN}"
        )
    if not writes and (wrong := [*differing(actual, desired.runtimes)]):
        return change, (
            f"{actual.config_path} is right, but the merged configuration is not: {'; '.join(map(str, wrong))}"
            f". Remedy: look at its `imports` and at `containerd config dump`, correct the file that wins, and {RUN}"
        )
    if actual.active and actual.cri_plugin is None and not (writes or actual.stale):
        return change, (
            "containerd runs, but `ctr plugins ls` does not report its CRI plugin; nothing was changed"
            f". Remedy: look at `journalctl -u {actual.unit}` on the node, and {RUN}"
        )
    return change, None


def _decision(
    judged: tuple[Finding, ...], actual: Containerd, change: RuntimeChange | None, blocked: str | None = None
) -> Decision[RuntimeChange]:
    """Return the decision with its one step, if any: one transaction changes files and daemon together."""
    if blocked is not None:
        judged = tuple(pending(item, blocked) for item in judged)
    fixes = bad(*judged)
    if not fixes:
        return Decision(judged)
    alone = {
        findings.CONFIGURATION_FILES.code: "write its configuration files",
        findings.CRI_PLUGIN.code: "restart it",
    }
    action = alone.get(fixes[0].code) or "configure its runtimes" + (" and restart it" if actual.active else "")
    step = Step(action, fixes, fixes[0].disruption or Disruption.nothing, blocked, change)
    return Decision(judged, (step,))


def _runtimes(desired: Runtimes, actual: Containerd, by_drop_in: Mapping[str, str]) -> Iterator[Finding]:
    """Compare the merged configuration, and whether the daemon runs by it."""
    names, cgroup = ("runc", "nvidia") if desired.nvidia else ("runc",), str(desired.systemd_cgroup).lower()
    if actual.version is not None and (actual.merged, actual.default_runtime, actual.runtimes) == (None, None, ()):
        unread, remedy = findings.NOT_MERGED, f"run it on the node, correct what it reports, and {RUN}"
        yield findings.DEFAULT_RUNTIME.not_known(desired.default, unread, remedy)
        for name in names:
            yield findings.SYSTEMD_CGROUP.not_known(cgroup, unread, remedy, of=name)
        return
    disruption = restart_of(actual)
    differs = findings.MERGED_DIFFERS if actual.version else None
    table = actual.default_runtime == DEFAULT_TABLE
    yield findings.DEFAULT_RUNTIME.compared(
        actual.default_runtime,
        desired.default,
        actual.default_runtime == desired.default,
        cause=by_drop_in.get(DEFAULT_RUNTIME) or (findings.DEPRECATED_TABLE if table else differs),
        disruption=disruption,
    )
    for name in names:
        runtime = actual.runtime(name)
        value = None if runtime is None else str(runtime.systemd_cgroup).lower()
        cause = by_drop_in.get(systemd_cgroup_of(name))
        yield findings.SYSTEMD_CGROUP.compared(
            value, cgroup, value == cgroup, of=name, cause=cause, disruption=disruption
        )
    if actual.stale:
        yield findings.RUNNING_CONFIGURATION.finding(
            FindingClass.RESTART_PENDING,
            "older than its files",
            "the files'",
            cause=findings.FILE_NEWER,
            remedy=RUN,
            disruption=disruption,
        )
    if cdi_option(desired.cdi, actual.version) is not None:
        good, cause = actual.enable_cdi is desired.cdi, by_drop_in.get("enable_cdi")
        yield findings.CDI.compared(
            _switch(actual.enable_cdi), _switch(desired.cdi), good, cause=cause, disruption=disruption
        )


def _plugin(actual: Containerd) -> Iterator[Finding]:
    plugin = actual.cri_plugin
    if actual.active and plugin is None and actual.disables_cri:
        cause = "disabled_plugins of the merged configuration names it"
        yield findings.CRI_PLUGIN.compared("disabled", "ok", False, cause=cause, disruption=restart_of(actual))
    elif actual.active and plugin is None:
        cause = "containerd runs, and `ctr plugins ls` does not report its CRI plugin"
        yield findings.CRI_PLUGIN.not_known("ok", cause, f"look at `journalctl -u {actual.unit}`")
    elif actual.active:
        yield findings.CRI_PLUGIN.compared(plugin, "ok", plugin == "ok", disruption=restart_of(actual))


def _files(actual: Containerd, change: RuntimeChange | None, restart: bool) -> Finding:
    """Compare the files with what a run would write, whatever the merged configuration is."""
    paths = ", ".join(file.path for file in change.files) if change is not None else ""
    return findings.CONFIGURATION_FILES.compared(
        f"another text in {paths}" if paths else AS_DESIRED,
        AS_DESIRED,
        not paths,
        cause=findings.FILES_DIFFER,
        disruption=restart_of(actual) if restart else Disruption.nothing,
    )


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _sysctls(actual: KubernetesSysctls) -> Iterator[Finding]:
    values = dict(actual.values)
    for name, desired in KUBERNETES.items():
        yield findings.SYSCTL.compared(values.get(name), desired, values.get(name) == desired, of=name)
