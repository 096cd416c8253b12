"""The decision about containerd: every comparison of actual with desired, and the steps that remove the differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpunode.base.comparison import AS_DESIRED, RUN
from gpunode.base.decision import Decision
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.containerd import findings, merged
from gpunode.components.runtimes.containerd.adoption import NVIDIA_DROP_IN, adopted
from gpunode.components.runtimes.containerd.change import Placement, needed_change, placement_of
from gpunode.components.runtimes.containerd.cri_plugin import plugin_findings, refused_settings
from gpunode.components.runtimes.containerd.effective import DEFAULT_TABLE
from gpunode.components.runtimes.containerd.source import UNIT
from gpunode.components.runtimes.containerd.state import Containerd
from gpunode.components.runtimes.judge import Desired as DesiredRuntime
from gpunode.components.runtimes.judge import RuntimeJudge
from gpunode.components.runtimes.runtime import Act, RuntimeChange, Runtimes, restart_of

if TYPE_CHECKING:
    from gpunode.settings import Settings
    from gpunode.system.kernel import KubernetesSysctls

# Source of the settings -> its packages; none where containerd is installed already.
PACKAGES = {"distribution": ("containerd",), "docker-repository": ("containerd.io",)}


@dataclass(frozen=True)
class Desired(DesiredRuntime):
    """The desired containerd of one node.

    adopts: whether the drop-in of nvidia-ctk is taken over
    packages: the packages that install it; none where no run does
    sysctls: whether the kernel settings that Kubernetes needs are part of it
    """

    unit: str = UNIT
    placement: Placement = "auto"
    adopts: bool = False
    packages: tuple[str, ...] = ()
    sysctls: bool = False


def desired_of(settings: Settings) -> Desired:
    """Return the containerd that the settings describe: for the deploy, its operation, drift, plan and preflight."""
    own = settings.containerd
    return Desired(
        Runtimes(own.default_runtime, own.systemd_cgroup, settings.toolkit.enabled or None, own.cdi),
        Disruption[settings.disruption.allow],
        own.version,
        placement=own.placement,
        adopts=own.adopt_drop_in,
        packages=PACKAGES.get(own.source, ()),
        sysctls=own.kubernetes_sysctls,
        unit=own.unit,
    )


def judge_of(desired: Desired, actual: Containerd) -> RuntimeJudge:
    """Return the judge of one node's containerd."""
    own, has_texts = replace(desired, installs=bool(desired.packages)), actual.config_text is not None
    return RuntimeJudge(findings.FINDINGS, own, actual, actual.version, actual.binary, actual.shims, has_texts)


def decide(desired: Desired, actual: Containerd, sysctls: KubernetesSysctls) -> Decision[RuntimeChange]:
    """Return the decision about containerd: its package, its configuration, its service and its kernel settings."""
    judge = judge_of(desired, actual)
    return judge.component(
        (_forecast if judge.is_forecast else decide_configuration)(desired, actual),
        others=tuple(_sysctls(sysctls)) if desired.sysctls else (),
        others_action="set what Kubernetes needs of the kernel",
    )


def decide_configuration(desired: Desired, actual: Containerd) -> Decision[RuntimeChange]:
    """Return the decision about the configuration of an installed containerd, which its operation carries out."""
    judge, by_drop_in = judge_of(desired, actual), _by_drop_in(desired, actual)
    values, plugin = tuple(_runtimes(desired.runtimes, actual, by_drop_in)), tuple(plugin_findings(actual))
    change, refusal, editable = None, None, True
    try:
        change, refusal = _change(desired, actual)
    except ConfigurationRefused as error:
        refusal, editable = refused_settings(actual, None) or f"{actual.config_path}: {error}", False
    act: Act = "restart" if change is not None and merged.needs_restart(actual, change) else "nothing"
    if change is not None and act == "nothing" and judge.blocked is not None:
        # Running containers are not disturbed where no restart is needed.
        change = replace(change, act="nothing")
    causes = {cause: f"{cause}. Remedy: correct or remove that drop-in" for cause in by_drop_in.values()}
    return judge.configuration(values, act, change, refusal, editable=editable, plugin=plugin, causes=causes)


def _forecast(desired: Desired, actual: Containerd) -> Decision[RuntimeChange]:
    """Return the decision by the merged configuration alone, where the texts of the files are not known yet."""
    by_drop_in = _by_drop_in(desired, actual)
    values = tuple(_runtimes(desired.runtimes, actual, by_drop_in))
    wrong = next(merged.differing(actual, desired.runtimes), None)
    if wrong is not None and all(item.finding_class is FindingClass.OK for item in values):
        # The program of the nvidia runtime has no finding of its own.
        cause, message = by_drop_in.get(wrong.key) or findings.VALUES_DIFFER.format(value=wrong), findings.FILES
        disruption = restart_of(actual)
        values += (message.compared("other values", AS_DESIRED, False, cause=cause, disruption=disruption),)
    refusal, plugin = refused_settings(actual, None), tuple(plugin_findings(actual))
    judge = judge_of(desired, actual)
    return judge.configuration(values, "restart", None, refusal, plugin=plugin, is_forecast=True)


def _by_drop_in(desired: Desired, actual: Containerd) -> dict[str, str]:
    """Return key -> the drop-in of another program that overrides it, and its value."""
    found = merged.overrides(actual, desired.runtimes, actual.drop_in(actual.own_drop_in) is not None)
    return {item.key: str(item) for item in found}


def _change(desired: Desired, actual: Containerd) -> tuple[RuntimeChange | None, str | None]:
    """Return the change of files and daemon, None where there is none; and why a run cannot make it.

    Raise ConfigurationRefused where the files cannot be edited.
    """
    change = needed_change(actual, desired.runtimes, desired.placement, desired.adopts)
    after = adopted(actual, desired.runtimes) if desired.adopts else actual
    in_drop_in = placement_of(after, desired.runtimes, desired.placement) == "drop-in"
    writes = change is not None and bool(change.files)
    if (refused := refused_settings(actual, change)) is not None:
        return change, refused
    if overriding := [*merged.overrides(after, desired.runtimes, in_drop_in)]:
        adopt = any(item.path == NVIDIA_DROP_IN for item in overriding)
        return change, (
            f"a drop-in overrides what {actual.config_path} sets: {'; '.join(map(str, overriding))}. Remedy: "
            f"{'set containerd.adopt_drop_in = True to have a run take it over, or ' if adopt else ''}"
            f"correct that drop-in, or remove it (and its import, where it is imported by name), and {RUN}"
        )
    if not writes and (wrong := [*merged.differing(actual, desired.runtimes)]):
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


# Key -> its finding, and the runtime that it is about.
_MESSAGES = {
    merged.DEFAULT_RUNTIME: (findings.DEFAULT_RUNTIME, None),
    merged.systemd_cgroup_of("runc"): (findings.SYSTEMD_CGROUP, "runc"),
    merged.systemd_cgroup_of("nvidia"): (findings.SYSTEMD_CGROUP, "nvidia"),
}
_SWITCH: dict[str | None, str] = {"true": "on", "false": "off"}


def _runtimes(desired: Runtimes, actual: Containerd, by_drop_in: Mapping[str, str]) -> Iterator[Finding]:
    """Compare the merged configuration, and whether the daemon runs by it."""
    values, actuals, disruption = merged.desired_values(desired, actual.version), actual.effective, restart_of(actual)
    if actual.version is not None and (actual.merged, actual.default_runtime, actual.runtimes) == (None, None, ()):
        unread, remedy = findings.NOT_MERGED, f"run it on the node, correct what it reports, and {RUN}"
        for key, (message, name) in _MESSAGES.items():
            if key in values:
                yield message.not_known(values[key], unread, remedy, of=name)
        return
    table, differs = actual.default_runtime == DEFAULT_TABLE, findings.MERGED_DIFFERS if actual.version else None
    causes = {merged.DEFAULT_RUNTIME: findings.DEPRECATED_TABLE if table else differs, **by_drop_in}
    for key, (message, name) in _MESSAGES.items():
        if key in values:
            value, good = actuals.get(key), actuals.get(key) == values[key]
            yield message.compared(value, values[key], good, of=name, cause=causes.get(key), disruption=disruption)
    if actual.stale:
        pending, cause = FindingClass.RESTART_PENDING, findings.FILE_NEWER
        yield findings.RUNNING_CONFIGURATION.finding(
            pending, "older than its files", "the files'", cause=cause, remedy=RUN, disruption=disruption
        )
    if (switch := values.get(merged.CDI)) is not None:
        value, good = _SWITCH.get(actuals.get(merged.CDI)), actuals.get(merged.CDI) == switch
        yield findings.CDI.compared(value, _SWITCH[switch], good, cause=causes.get(merged.CDI), disruption=disruption)


def _sysctls(actual: KubernetesSysctls) -> Iterator[Finding]:
    for name, value, desired in actual.compared():
        yield findings.SYSCTL.compared(value, desired, value == desired, of=name)
