"""What is to be done about containerd: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from gpunode.base import versions
from gpunode.base.comparison import RUN, by_hand, configuration, pending, unrecorded
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd import findings as containerd
from gpunode.components.containerd.change import Placement, change, placed
from gpunode.components.containerd.drop_in import PATH
from gpunode.components.containerd.editor import Runtimes
from gpunode.components.containerd.merged import restarts
from gpunode.components.containerd.overrides import shadows, unexplained
from gpunode.components.containerd.state import DEFAULT_TABLE, Containerd
from gpunode.components.runtime import RuntimeChange
from gpunode.components.service_verdict import (
    RUNNING,
    boot_verdict,
    masked_refusal,
    refused_start,
    running_steps,
    service_verdict,
)
from gpunode.system.sysctl import KUBERNETES, KubernetesSysctls

_DEFAULT = "containerd.default_runtime_name"
_OTHERWISE = "the merged configuration (`containerd config dump`) says otherwise"
_DEFAULT_CAUSES = {
    DEFAULT_TABLE: "a deprecated table of that name has a runtime_type, and wins over default_runtime_name"
}


@dataclass(frozen=True)
class Desired:
    """Hold what containerd is to be, and what a change of it may disturb.

    version: itself or its branch; None: any
    sysctls: whether the kernel is to have what Kubernetes needs of it
    """

    runtimes: Runtimes
    placement: Placement = "auto"
    allowed: Disruption = Disruption.restart
    version: str | None = None
    sysctls: bool = False


@dataclass(frozen=True)
class _Configured:
    """Hold the decision on the configuration in parts: what containerd does, its files, its plugin, and one step."""

    answers: tuple[Finding, ...]
    files: tuple[Finding, ...]
    plugin: tuple[Finding, ...]
    step: Step[RuntimeChange] | None
    refusal: str | None

    def by_hand(self, refusal: str, by_drop_in: Collection[str]) -> _Configured:
        """Return all differences as a person's; a cause that names the drop-in that says otherwise stays."""
        answers, files, plugin = (
            tuple(by_hand(item, item.cause if item.cause in by_drop_in and item.cause else refusal) for item in group)
            for group in (self.answers, self.files, self.plugin)
        )
        return _Configured(answers, files, plugin, None, refusal)


def decide(desired: Desired, actual: Containerd, sysctls: KubernetesSysctls) -> Decision[RuntimeChange]:
    """Return what is to be done about containerd; a daemon that runs has to be restarted to do otherwise."""
    version, held = decide_version(desired, actual)
    good = not bad(version) or (held is not None and actual.version is not None)
    service, boots = service_verdict("containerd.service", actual), boot_verdict("containerd.service", actual)
    up = service.actual == RUNNING
    runs = containerd.SERVICE.compared(service.actual, RUNNING, up, remedy=service.remedy, cause=service.cause)
    at_boot = actual.enabled
    starts = containerd.STARTS_AT_BOOT.compared(boots.actual, "yes", at_boot, remedy=boots.remedy, cause=boots.cause)
    kernel = tuple(_sysctls(sysctls)) if desired.sysctls else ()
    # Recorded facts have no text, and files are judged in the version that is to come.
    own = (_configured if good and actual.config_text is not None else _forecast)(desired, actual)
    steps: list[Step[RuntimeChange]] = []
    if bad(version):
        steps.append(Step("install containerd", (version,), version.disruption or Disruption.nothing, held))
    refusal = own.refusal or refused_start("containerd.service", runs, starts)
    if refusal is not None and own.step is not None and own.step.waits is None:
        own = own.by_hand(refusal, ())
    if own.step is not None and own.step.settles:
        steps.append(own.step)
    if missing := bad(*kernel):
        steps.append(Step("set what Kubernetes needs of the kernel", missing, Disruption.nothing))
    # Behind a change that is refused the run comes to nothing else.
    steps += running_steps(runs, starts, refusal)
    findings = (version, runs, starts, *own.answers, *kernel, *own.files, *own.plugin)
    return Decision(findings, tuple(steps), refusal)


def decide_version(desired: Desired, actual: Containerd) -> tuple[Finding, str | None]:
    """Judge the version, and return why its packages wait: where they are upgraded, they restart the daemon."""
    found, rule = actual.version, desired.version
    good = found is not None and (rule is None or versions.in_branch(found, rule))
    version = containerd.VERSION.compared(found, rule or "any version", good, disruption=_restart(actual))
    waits = _waits(desired, actual) if version.disruption else None
    return (version if waits is None else pending(version, waits)), waits


def decide_configuration(desired: Desired, actual: Containerd) -> Decision[RuntimeChange]:
    """Return what is to be done about the configuration of an installed containerd, by which its operation goes."""
    own = _configured(desired, actual)
    return Decision((*own.answers, *own.files, *own.plugin), (own.step,) if own.step else (), own.refusal)


def _forecast(desired: Desired, actual: Containerd) -> _Configured:
    """Decide by what containerd does alone; what becomes of its files is told when they are known."""
    answers, plugin = tuple(_answers(desired.runtimes, actual, _by_drop_in(desired, actual))), tuple(_plugin(actual))
    waits = _waits(desired, actual)
    if waits is not None:
        answers, plugin = (tuple(pending(item, waits) for item in group) for group in (answers, plugin))
    step = _step(bad(*answers), (), bad(*plugin), actual, None)
    # A node without the file has a merged configuration.
    is_unrecorded = actual.config_text is None and actual.merged_text is None and actual.version is not None
    files = (unrecorded(containerd.CONFIGURATION_FILES),) if is_unrecorded and not bad(*answers) else ()
    if actual.masked and step is not None and waits is None:
        refusal = masked_refusal("containerd.service")
        return _Configured(answers, files, plugin, None, refusal).by_hand(refusal, ())
    return _Configured(answers, files, plugin, step and replace(step, waits=waits), None)


def _configured(desired: Desired, actual: Containerd) -> _Configured:
    """Decide by what containerd does and by its files, in the version that runs."""
    by_drop_in = _by_drop_in(desired, actual)
    answers, plugin = tuple(_answers(desired.runtimes, actual, by_drop_in)), tuple(_plugin(actual))
    try:
        to_come, refusal = _to_come(desired, actual)
    except ConfigurationRefused as error:
        refusal = f"{actual.config_path}: {error}"
        uneditable = () if bad(*answers) else (containerd.not_editable(refusal),)
        return _Configured(answers, uneditable, plugin, None, refusal).by_hand(refusal, by_drop_in.values())
    felt = to_come is not None and restarts(actual, to_come)
    waits = _waits(desired, actual) if felt else None
    if to_come is not None and actual.masked and waits is None and refusal is None:
        refusal = masked_refusal("containerd.service")
    files: tuple[Finding, ...] = () if bad(*answers) else (_files(actual, to_come, felt),)
    if refusal is not None:
        if files and not bad(*files) and all(item.finding_class is FindingClass.OK for item in (*answers, *plugin)):
            # Whoever asks hears what a run would say.
            files = (containerd.not_editable(refusal),)
        return _Configured(answers, files, plugin, None, refusal).by_hand(refusal, by_drop_in.values())
    if waits is not None:
        answers, files, plugin = (tuple(pending(item, waits) for item in group) for group in (answers, files, plugin))
    elif to_come is not None and is_forbidden(Disruption.restart, desired.allowed, actual.shims):
        # Without a restart, containers feel nothing of it.
        to_come = replace(to_come, act="nothing")
    step = _step(bad(*answers), bad(*files), bad(*plugin), actual, to_come)
    return _Configured(answers, files, plugin, step and replace(step, waits=waits), None)


def _waits(desired: Desired, actual: Containerd) -> str | None:
    """Return why a restart waits; None where it does not."""
    forbidden = is_forbidden(Disruption.restart, desired.allowed, actual.shims)
    return f"{actual.shims} containers run and disruption.allow is nothing" if forbidden else None


def _by_drop_in(desired: Desired, actual: Containerd) -> dict[str, str]:
    """Return key -> what a drop-in of somebody else's says otherwise."""
    return {item.key: str(item) for item in shadows(actual, desired.runtimes, actual.drop_in(PATH) is not None)}


def _plugin(actual: Containerd) -> Iterator[Finding]:
    if actual.active:
        found = actual.cri_plugin
        if found is None:
            cause = "containerd runs, and `ctr plugins ls` does not tell of its CRI plugin"
            yield containerd.CRI_PLUGIN.not_known("ok", cause, "look at `journalctl -u containerd`")
            return
        yield containerd.CRI_PLUGIN.compared(found, "ok", found == "ok", disruption=_restart(actual))


def _to_come(desired: Desired, actual: Containerd) -> tuple[RuntimeChange | None, str | None]:
    """Return the change of files and daemon, None where there is none; and why a run cannot make it.

    Raise ConfigurationRefused where the files cannot be edited.
    """
    to_come = change(actual, desired.runtimes, desired.placement)
    own_drop_in = placed(actual, desired.runtimes, desired.placement) == "drop-in"
    writes = to_come is not None and bool(to_come.files)
    if found := [*shadows(actual, desired.runtimes, own_drop_in)]:
        return to_come, (
            f"what {actual.config_path} is to say is overridden by a drop-in: {'; '.join(map(str, found))}. Mend that "
            "drop-in, or remove it (and its import, where it is one by name), then run again"
        )
    if not writes and (found := [*unexplained(actual, desired.runtimes)]):
        return to_come, (
            f"{actual.config_path} is right, but the merged configuration is not: {'; '.join(map(str, found))}. Look "
            "at its `imports` and at `containerd config dump`"
        )
    if actual.active and actual.cri_plugin is None and not (writes or actual.stale):
        return to_come, (
            "containerd runs, but `ctr plugins ls` does not tell how its CRI plugin is; nothing was changed. Look at "
            "`journalctl -u containerd` and run again"
        )
    return to_come, None


def _step(
    answers: tuple[Finding, ...],
    files: tuple[Finding, ...],
    plugin: tuple[Finding, ...],
    actual: Containerd,
    to_come: RuntimeChange | None,
) -> Step[RuntimeChange] | None:
    """Return the one step that settles all of it: one transaction brings files and daemon to what is desired."""
    settled = (*answers, *files, *plugin)
    if not settled:
        # A file that nobody judges (it was not there) is written all the same.
        return Step("write its configuration files", (), Disruption.nothing, change=to_come) if to_come else None
    if answers:
        action = "bring its runtimes to what is asked" + (" and restart it" if actual.active else "")
    else:
        action = "write its configuration files" if files else "restart it"
    return Step(action, settled, settled[0].disruption or Disruption.nothing, change=to_come)


def _answers(runtimes: Runtimes, actual: Containerd, by_drop_in: Mapping[str, str]) -> Iterator[Finding]:
    """Judge the merged configuration, and whether the daemon runs by it."""
    named, cgroup = ("runc", "nvidia") if runtimes.nvidia else ("runc",), str(runtimes.systemd_cgroup).lower()
    if actual.version is not None and (actual.merged, actual.default_runtime, actual.runtimes) == (None, None, ()):
        cause = "`containerd config dump` printed no configuration"
        remedy = f"run it on the node, mend what it names, and {RUN}"
        yield containerd.DEFAULT_RUNTIME.not_known(runtimes.default, cause, remedy)
        for name in named:
            yield containerd.SYSTEMD_CGROUP.not_known(cgroup, cause, remedy, of=name)
        return
    yield containerd.DEFAULT_RUNTIME.compared(
        actual.default_runtime,
        runtimes.default,
        actual.default_runtime == runtimes.default,
        cause=by_drop_in.get(_DEFAULT) or _DEFAULT_CAUSES.get(actual.default_runtime or "", _OTHERWISE),
        disruption=_restart(actual),
    )
    for name in named:
        runtime = actual.runtime(name)
        value = None if runtime is None else str(runtime.systemd_cgroup).lower()
        good, own = value == cgroup, by_drop_in.get(_cgroup_of(name))
        disruption = _restart(actual)
        yield containerd.SYSTEMD_CGROUP.compared(value, cgroup, good, of=name, cause=own, disruption=disruption)
    if actual.stale:
        yield containerd.RUNNING_CONFIGURATION.finding(
            FindingClass.RESTART_PENDING,
            "older than its files",
            "the files'",
            cause=containerd.FILE_NEWER,
            remedy=RUN,
            disruption=_restart(actual),
        )
    if runtimes.cdi is not None:
        yield containerd.CDI.compared(
            _switch(actual.enable_cdi),
            _switch(runtimes.cdi),
            actual.enable_cdi is runtimes.cdi,
            cause=by_drop_in.get("enable_cdi"),
            disruption=_restart(actual),
        )


def _files(actual: Containerd, to_come: RuntimeChange | None, felt: bool) -> Finding:
    """Judge whether a run would write its configuration anew, for all that the merged one says."""
    if to_come is None or not to_come.files:
        return configuration(containerd.CONFIGURATION_FILES, None)
    disruption = _restart(actual) if felt else Disruption.nothing
    return configuration(
        containerd.CONFIGURATION_FILES, ", ".join(file.path for file in to_come.files), disruption=disruption
    )


def _cgroup_of(name: str) -> str:
    return f"containerd.runtimes.{name}.options.SystemdCgroup"


def _restart(actual: Containerd) -> Disruption:
    return Disruption.restart if actual.active else Disruption.nothing


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _sysctls(actual: KubernetesSysctls) -> Iterator[Finding]:
    present = dict(actual.values)
    for name, desired in KUBERNETES.items():
        found = present.get(name)
        yield containerd.SYSCTL.compared(found, desired, found == desired, of=name)
