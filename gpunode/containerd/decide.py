"""What is to be done about containerd: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from gpunode import versions
from gpunode.base.comparison import RUN, by_hand, compared, configuration, pending
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.subject import Subject
from gpunode.containerd.change import Placement, change, placed
from gpunode.containerd.drop_in import PATH
from gpunode.containerd.editor import Runtimes
from gpunode.containerd.merged import restarts
from gpunode.containerd.shadow import shadows, unexplained
from gpunode.containerd.state import DEFAULT_TABLE, Containerd
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.runtime import RuntimeChange
from gpunode.service_verdict import RUNNING, boot_verdict, running_steps, service_verdict
from gpunode.sysctl import KUBERNETES, KubernetesSysctls
from gpunode.toml_edit import ConfigurationRefused

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
    allowed: Disturbance = Disturbance.restart
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
    found, rule = actual.version, desired.version
    good = found is not None and (rule is None or versions.in_branch(found, rule))
    version = compared("containerd", Subject.VERSION, found, rule or "any version", good, disturbs=_restart(actual))
    service, boots = service_verdict("containerd.service", actual), boot_verdict("containerd.service", actual)
    good = service.found == RUNNING
    runs = compared("containerd", Subject.SERVICE, service.found, RUNNING, good, service.remedy, service.cause)
    good = actual.enabled
    starts = compared("containerd", Subject.STARTS_AT_BOOT, boots.found, "yes", good, boots.remedy, boots.cause)
    kernel = tuple(_sysctls(sysctls)) if desired.sysctls else ()
    own = _configured(desired, actual)
    # Recorded facts have no text.
    files = own.files if actual.config_text is not None else ()
    steps: list[Step[RuntimeChange]] = []
    if bad(version):
        steps.append(Step("install containerd", (version,), version.disturbs or Disturbance.nothing))
    if own.step is not None and (settled := tuple(item for item in own.step.settles if item not in own.files or files)):
        steps.append(replace(own.step, settles=settled))
    if missing := bad(*kernel):
        steps.append(Step("set what Kubernetes needs of the kernel", missing, Disturbance.nothing))
    steps += running_steps(runs, starts)
    findings = (version, runs, starts, *own.answers, *kernel, *files, *own.plugin)
    return Decision(findings, tuple(steps), own.refusal)


def decide_configuration(desired: Desired, actual: Containerd) -> Decision[RuntimeChange]:
    """Return what is to be done about containerd's configuration alone, by which its operation goes."""
    own = _configured(desired, actual)
    return Decision((*own.answers, *own.files, *own.plugin), (own.step,) if own.step else (), own.refusal)


def _configured(desired: Desired, actual: Containerd) -> _Configured:
    by_drop_in = {item.key: str(item) for item in shadows(actual, desired.runtimes, actual.drop_in(PATH) is not None)}
    answers = tuple(_answers(desired.runtimes, actual, by_drop_in))
    plugin: tuple[Finding, ...] = ()
    if actual.active:
        found = actual.cri_plugin
        plugin = (compared("containerd", Subject.CRI_PLUGIN, found, "ok", found == "ok", disturbs=_restart(actual)),)
    if actual.version is None:
        # What is to be installed has no files yet.
        steps = _step(bad(*answers), (), bad(*plugin), actual, None)
        return _Configured(answers, (), plugin, steps, None)
    to_come, refusal = _to_come(desired, actual)
    felt = to_come is not None and restarts(actual, to_come)
    files: tuple[Finding, ...] = ()
    if not bad(*answers):
        files = (_files(actual, to_come, felt),)
    if refusal is not None:
        if files and not bad(*plugin):
            # Whoever asks hears what a run would say.
            files = (configuration("containerd", None, refusal),)
        return _Configured(answers, files, plugin, None, refusal).by_hand(refusal, by_drop_in.values())
    waits = None
    if to_come is not None and is_forbidden(Disturbance.restart, desired.allowed, actual.shims):
        # Without a restart, containers feel nothing of it.
        if felt:
            waits = f"{actual.shims} containers run and disruption.allow is nothing"
            answers = tuple(pending(item, waits) for item in answers)
            files = tuple(pending(item, waits) for item in files)
        else:
            to_come = replace(to_come, act="nothing")
    step = _step(bad(*answers), bad(*files), bad(*plugin), actual, to_come)
    return _Configured(answers, files, plugin, step and replace(step, waits=waits), None)


def _to_come(desired: Desired, actual: Containerd) -> tuple[RuntimeChange | None, str | None]:
    """Return the change of files and daemon, None where there is none; and why a run cannot make it."""
    try:
        to_come = change(actual, desired.runtimes, desired.placement)
        own_drop_in = placed(actual, desired.runtimes, desired.placement) == "drop-in"
    except ConfigurationRefused as refusal:
        return None, f"{actual.config_path}: {refusal}"
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
    answers: tuple[Finding, ...], files: tuple[Finding, ...], plugin: tuple[Finding, ...], actual: Containerd,
    to_come: RuntimeChange | None,
) -> Step[RuntimeChange] | None:  # fmt: skip
    """Return the one step that settles all of it: one transaction brings files and daemon to what is desired."""
    settled = (*answers, *files, *plugin)
    if not settled:
        # A file that nobody judges (it was not there) is written all the same.
        return Step("write its configuration files", (), Disturbance.nothing, change=to_come) if to_come else None
    if answers:
        action = "bring its runtimes to what is asked" + (" and restart it" if actual.active else "")
    else:
        action = "write its configuration files" if files else "restart it"
    return Step(action, settled, settled[0].disturbs or Disturbance.nothing, change=to_come)


def _answers(runtimes: Runtimes, actual: Containerd, by_drop_in: Mapping[str, str]) -> Iterator[Finding]:
    """Judge the merged configuration, and whether the daemon runs by it."""
    otherwise = _DEFAULT_CAUSES.get(actual.default_runtime or "", _OTHERWISE)
    yield compared(
        "containerd", Subject.DEFAULT_RUNTIME, actual.default_runtime, runtimes.default,
        actual.default_runtime == runtimes.default,
        cause=by_drop_in.get(_DEFAULT) or otherwise,
        disturbs=_restart(actual),
    )  # fmt: skip
    for name in ("runc", "nvidia") if runtimes.nvidia else ("runc",):
        runtime = actual.runtime(name)
        value = None if runtime is None else str(runtime.systemd_cgroup).lower()
        wanted = str(runtimes.systemd_cgroup).lower()
        subject = Subject.SYSTEMD_CGROUP.of(name)
        cause = by_drop_in.get(_cgroup_of(name))
        yield compared("containerd", subject, value, wanted, value == wanted, cause=cause, disturbs=_restart(actual))
    if actual.stale:
        yield Finding(
            "containerd", FindingClass.RESTART_PENDING, Subject.RUNNING_CONFIGURATION,
            "older than its files", "the files'",
            cause="a configuration file was written after containerd started", remedy=RUN, disturbs=_restart(actual),
        )  # fmt: skip
    if runtimes.cdi is not None:
        yield compared(
            "containerd", Subject.CDI, _switch(actual.enable_cdi), _switch(runtimes.cdi),
            actual.enable_cdi is runtimes.cdi, cause=by_drop_in.get("enable_cdi"), disturbs=_restart(actual),
        )  # fmt: skip


def _files(actual: Containerd, to_come: RuntimeChange | None, felt: bool) -> Finding:
    """Judge whether a run would write its configuration anew, for all that the merged one says."""
    if to_come is None or not to_come.files:
        return configuration("containerd", None)
    disturbs = _restart(actual) if felt else Disturbance.nothing
    return configuration("containerd", ", ".join(file.path for file in to_come.files), disturbs=disturbs)


def _cgroup_of(name: str) -> str:
    return f"containerd.runtimes.{name}.options.SystemdCgroup"


def _restart(actual: Containerd) -> Disturbance:
    return Disturbance.restart if actual.active else Disturbance.nothing


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _sysctls(actual: KubernetesSysctls) -> Iterator[Finding]:
    present = dict(actual.values)
    for name, wanted in KUBERNETES.items():
        found = present.get(name)
        yield compared("containerd", Subject.SYSCTL.of(name), found, wanted, found == wanted)


__all__ = ["Desired", "decide", "decide_configuration"]
