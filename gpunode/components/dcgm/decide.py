"""What is to be done about DCGM: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from gpunode.base import versions
from gpunode.base.comparison import BY_HAND, RUN, by_hand, finding_message, running_configuration
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.dcgm.state import ENGINE, EXPORTER, HEALTHY, WARNING, Dcgm, DcgmUnit, variables
from gpunode.packages.installed_packages import satisfies
from gpunode.settings.dcgm import DcgmSettings, known
from gpunode.system.service import MEND_BOOT, MEND_SERVICE, refused_start, running_steps, service_findings

_LISTEN = "DCGM_EXPORTER_LISTEN"
# What it listens at where nothing tells it.
_BY_ITSELF = ":9400"
_LOG = "its own words are in /var/log/dcgm-exporter.log"
_LOOK = "look at `dcgmi health -c` on the node, drain it and run `dcgmi diag -r 2`; have what is broken replaced"

_FORMER = "{packages} is installed (DCGM 3), which excludes DCGM 4"
_TWO = (
    "the cluster's exporter is on this node, and the host runs DCGM that gpunode did not bring: of two engines one "
    "alone gets the profiles. Remedy: `systemctl disable --now {units}`, or set dcgm_exporter_chart.enabled = False"
)
_IN_PODS = (
    "the cluster has DCGM on this node, and the host has its own: both query the GPUs, and one gets their profiles"
    ". Remedy: set dcgm.enabled = False, or leave the node out of the cluster's exporter"
)
_FLAGS = "the command line of {unit} says {flags}, which win. Remedy: take it out there (`systemctl cat {unit}`)"
_OTHER_DROP_IN = "another drop-in of {unit} overrides {names}. Remedy: take it out there (`systemctl cat {unit}`)"
_NO_ANSWER = "dcgmi gives no answer"
_LOOK_AGAIN = f"look at `dcgmi health -c` and `journalctl -u {ENGINE}` on the node, and {RUN}"
_declared = partial(finding_message, "dcgm")
SERVICE = _declared(
    "service",
    "A service of DCGM is not in the state that the settings ask for.",
    "The host engine or the exporter does not run although the settings ask for it, or runs although they do not. "
    "Of two engines on a node only one gets profiling metrics.",
    causes=(_LOG,),
    remedies=MEND_SERVICE,
)
VERSION = _declared(
    "version",
    "DCGM is not of the version that the settings ask for.",
    "DCGM (Data Center GPU Manager) watches GPUs and gives their metrics. It is missing, or of another version.",
    causes=(_FORMER,),
)
PACKAGES = _declared(
    "packages",
    "DCGM's packages are not of one version.",
    "They need each other at the same version: one was upgraded alone, or is missing.",
    cause="they need each other at one version",
)
EXPORTER_VERSION = _declared(
    "exporter",
    "DCGM's exporter is not what the settings ask for.",
    "It hands the GPUs' metrics to Prometheus. It is missing, left over, or of another version.",
)
HOST_DCGM = _declared(
    "DCGM of the host",
    "The host runs a DCGM in addition to the one in pods.",
    "Both query the GPUs, and only one of them gets profiling metrics; the other has gaps.",
    causes=(_TWO,),
    remedies=(BY_HAND,),
)
PODS = _declared(
    "DCGM in pods",
    "DCGM runs in pods on this node, in addition to the host's DCGM.",
    "Both query the GPUs, and only one of them gets profiling metrics; the other has gaps.",
    causes=(_IN_PODS,),
    remedies=(BY_HAND,),
)
AT_BOOT = _declared(
    "starts at boot:",
    "A service of DCGM's does not start at boot.",
    "It may run now, and will be missing after the next boot.",
    remedies=MEND_BOOT,
)
UNIT_FILES = _declared(
    "unit files of",
    "The unit files of a DCGM service are not what the settings ask for.",
    "systemd starts the service by these files and their drop-ins. Another drop-in may override gpunode's.",
    name="unit-files",
)
ADDRESS = _declared(
    "address of the exporter",
    "DCGM's exporter listens on another address than the settings ask for.",
    "Prometheus does not find it there, or it is open to networks that are not meant to read it.",
    causes=(_FLAGS, _OTHER_DROP_IN),
)
RUNNING_CONFIGURATION = running_configuration("dcgm")
HEALTH_WATCHES = _declared(
    "health watches",
    "DCGM's health watches are off.",
    "Without them DCGM reports every GPU as healthy, because it does not look.",
)
HEALTH = _declared(
    "health by DCGM",
    "DCGM reports a GPU, or another part, that is not healthy.",
    "As a warning the GPU goes on working; as an error its jobs may fail or give wrong results.",
    causes=(_NO_ANSWER,),
    remedies=(_LOOK, _LOOK_AGAIN),
    classes=(FindingClass.DRIFT, FindingClass.ERROR),
)


@dataclass(frozen=True)
class Desired:
    """Hold what a node is to have of DCGM.

    cuda: the major version that the driver's user mode is of
    pods: NAMESPACE/RELEASE of the chart's exporter that the node is to have in the cluster; None: it is to have none
    """

    settings: DcgmSettings
    cuda: int = 12
    pods: str | None = None

    @property
    def packages(self) -> dict[str, str | None]:
        """Return DCGM's packages -> the rule of their version, all of them at one."""
        desired, names = self.settings, known()
        found = [names.core]
        found += [names.diagnostics.format(major=self.cuda)] if desired.diagnostics else []
        found += [names.profiling] if desired.profiling else []
        return dict.fromkeys(found, desired.version)

    @property
    def units(self) -> tuple[str, ...]:
        """Return the units that are to run, in the order of their start."""
        if not self.settings.enabled:
            return ()
        return (ENGINE, EXPORTER) if self.settings.exporter.enabled else (ENGINE,)


@dataclass(frozen=True)
class Change:
    """Hold what is to be done to a unit: stop it for good, read its files, start it anew; or to have health watched."""

    what: Literal["remove", "read", "restart", "watch"]
    unit: str = ENGINE


def cuda_of(driver: str | None) -> int:
    """Return the major version of CUDA that a driver's user mode is of: by its version or branch; not known: 12."""
    return 13 if driver and versions.at_least(driver, known().first_branch_of_cuda_13) else 12


def gone(desired: Desired, actual: Dcgm) -> tuple[str, ...]:
    """Return the units that gpunode was asked to run, and is not any more; the exporter first, which asks the other."""
    return tuple(unit for unit in actual.units if unit not in desired.units and actual.is_gpunode_s(unit))


def second_pods(desired: Desired, actual: Dcgm) -> tuple[str, ...]:
    """Return the pods that would be a second DCGM beside the host's; those that ask the host's engine are none."""
    own = f"{desired.pods}-" if desired.pods is not None else None
    return tuple(pod for pod in actual.pods if own is None or not pod.startswith(own))


def second_units(desired: Desired, actual: Dcgm) -> tuple[str, ...]:
    """Return the units of others that run where the chart brings the node's exporter; gpunode stops its own."""
    if desired.pods is None:
        return ()
    running = (unit for unit, state in actual.units.items() if state is not None and state.active)
    return tuple(unit for unit in running if unit not in desired.units and not actual.is_gpunode_s(unit))


def in_the_way(desired: DcgmSettings, actual: Dcgm) -> str | None:
    """Return why DCGM 4 cannot come: DCGM 3 is there, and nobody said that it may go."""
    if not desired.enabled or desired.migrate or not actual.former:
        return None
    return _FORMER.format(packages=", ".join(actual.former))


def decide(desired: Desired, actual: Dcgm) -> Decision[Change]:
    """Return what is to be done about DCGM on the host: what is there, what runs, by what, and how the GPUs are."""
    going = tuple(_going(desired, actual))
    findings = [item for _, item in going]
    steps = [_step(f"stop {unit} for good", item, Change("remove", unit)) for unit, item in going if bad(item)]
    beside = tuple(_units(desired, actual))
    if not desired.settings.enabled:
        return Decision((*findings, *beside), tuple(steps))
    refusal = in_the_way(desired.settings, actual)
    others = second_pods(desired, actual)
    of_pods = by_hand(PODS.compared(", ".join(others) or None, "none", not others), _IN_PODS)
    packages, pods = tuple(_packages(desired, actual)), (of_pods, *beside)
    if refusal is not None:
        return Decision((*findings, *(by_hand(item, refusal) for item in packages), *pods), (), refusal)
    if bad(*packages):
        names = tuple(desired.packages) + ((known().exporter,) if desired.settings.exporter.enabled else ())
        steps.append(Step("install DCGM", bad(*packages), Disruption.nothing, packages=names))
    findings += [*packages, *pods]
    for unit in desired.units:
        state = actual.units[unit] or DcgmUnit()
        runs, starts = service_findings(unit, state, SERVICE, AT_BOOT, unit)
        if unit == EXPORTER and runs.cause:
            runs = replace(runs, cause=f"{runs.cause}; {_LOG}")
        shown = "changed since systemd read them" if state.outdated else "read"
        read = UNIT_FILES.compared(shown, "read", not state.outdated, of=unit)
        findings += (runs, starts, read)
        steps += (_step("have systemd read its files", item, Change("read", unit)) for item in bad(read))
        refusal = refusal or refused_start(unit, runs, starts)
        steps += running_steps(runs, starts, refusal)
    if EXPORTER in desired.units and actual.exporter is not None and actual.exporter.active:
        runs_by = tuple(_runs_by(desired, actual))
        findings += runs_by
        if own := tuple(item for item in bad(*runs_by) if not item.by_person):
            steps.append(Step("restart the exporter", own, Disruption.nothing, change=Change("restart", EXPORTER)))
    if desired.settings.health and actual.engine is not None and actual.engine.active:
        for item in _health(actual):
            findings.append(item)
            if item.code == HEALTH_WATCHES.code and bad(item):
                steps.append(_step("have the GPUs' health watched", item, Change("watch")))
    # The run has them run before it does anything else to them.
    steps = [step if step.change is None else replace(step, waits=refusal) for step in steps]
    steps.sort(key=lambda step: step.waits is not None)
    return Decision(tuple(findings), tuple(steps), refusal)


def _step(action: str, item: Finding, change: Change) -> Step[Change]:
    return Step(action, (item,), Disruption.nothing, change=change)


def _going(desired: Desired, actual: Dcgm) -> Iterator[tuple[str, Finding]]:
    for unit in gone(desired, actual):
        state = actual.units[unit] or DcgmUnit()
        words = ["running"] * state.active + ["starts at boot"] * state.enabled
        shown = ", ".join(words) or "stopped"
        yield unit, SERVICE.compared(shown, "stopped", not words, of=unit)


def _packages(desired: Desired, actual: Dcgm) -> Iterator[Finding]:
    """Judge DCGM's version, whether its packages are there and of one version, and the exporter's version."""
    rule, core, there = desired.settings.version, actual.version, dict(actual.packages)
    good = core is not None and satisfies(core, rule)
    yield VERSION.compared(core, rule or "any version of DCGM 4", good)
    lacking = [name for name in desired.packages if core is None or not _is_of(there.get(name), core)]
    lacking += actual.lost
    shown = f"without {', '.join(lacking)}" if lacking else "complete"
    yield PACKAGES.compared(shown, "complete", not lacking)
    exporter = desired.settings.exporter
    if exporter.enabled:
        version = there.get(known().exporter)
        good = version is not None and satisfies(version, exporter.version)
        yield EXPORTER_VERSION.compared(version, exporter.version or "any version", good)


def _is_of(version: str | None, core: str) -> bool:
    try:
        return version is not None and versions.same(version, core)
    except versions.VersionError:
        return False


def _units(desired: Desired, actual: Dcgm) -> Iterator[Finding]:
    """Judge whether the host has DCGM of its own where the chart brings the exporter; elsewhere there is nothing."""
    if desired.pods is not None:
        running = second_units(desired, actual)
        item = HOST_DCGM.compared(", ".join(running) or None, "none", not running)
        yield by_hand(item, _TWO.format(units=" ".join(running)))


def _runs_by(desired: Desired, actual: Dcgm) -> Iterator[Finding]:
    """Judge by what the exporter runs: where it listens, and the rest of what it was started with."""
    to_be, runs = variables(desired.settings.exporter), dict(actual.variables)
    listens = runs.get(_LISTEN, _BY_ITSELF)
    items = [ADDRESS.compared(listens, to_be[_LISTEN], listens == to_be[_LISTEN])]
    names = sorted(({*to_be, *runs} & _OURS) - {_LISTEN})
    wrong = [name for name in names if runs.get(name) != to_be.get(name)]
    shown = ", ".join(f"{name}={runs.get(name, '')}" for name in wrong) or "as desired"
    said = ", ".join(f"{name}={to_be.get(name, '')}" for name in wrong) or "as desired"
    items.append(RUNNING_CONFIGURATION.compared(shown, said, not wrong))
    reason = _overruled(desired, actual)
    if actual.flags:
        item = replace(items[0], finding_class=FindingClass.DRIFT, remedy=RUN, disruption=Disruption.nothing)
        items[0] = replace(item, actual=f"as {', '.join(actual.flags)} says")
    yield from (by_hand(item, reason) if reason else item for item in items)


# What gpunode tells the exporter; of other variables it says nothing.
_OURS = {_LISTEN, "DCGM_EXPORTER_INTERVAL", "DCGM_REMOTE_HOSTENGINE_INFO", "DCGM_EXPORTER_NO_HOSTNAME"}


def _overruled(desired: Desired, actual: Dcgm) -> str | None:
    """Return what counts more than gpunode's drop-in, so that a restart would not help; None where nothing does."""
    if actual.flags:
        return _FLAGS.format(unit=EXPORTER, flags=", ".join(actual.flags))
    to_be, configured = variables(desired.settings.exporter), dict(actual.configured)
    is_read = actual.exporter is not None and not actual.exporter.outdated and dict(actual.told) == to_be
    other = [name for name in sorted(_OURS) if configured.get(name) != to_be.get(name)]
    if not is_read or not other:
        return None
    return _OTHER_DROP_IN.format(unit=EXPORTER, names=", ".join(other))


def _health(actual: Dcgm) -> Iterator[Finding]:
    """Judge whether the GPUs are watched, and what DCGM says of them."""
    found = actual.health
    if found is not None and found.error:
        yield HEALTH.not_known(HEALTHY, f"{_NO_ANSWER}: {found.error}", _LOOK_AGAIN)
        return
    watched = found is not None and found.watched
    yield HEALTH_WATCHES.compared("on" if watched else "off", "on", watched)
    if found is None or not watched:
        return
    for each in found.incidents:
        yield _reported(each.value, f"of {each.entity}: {each.system}", each.message or None)
    if not found.incidents:
        good = found.overall == HEALTHY
        item = HEALTH.compared(found.overall, HEALTHY, good)
        yield item if good else _reported(str(found.overall))


def _reported(value: str, of: str | None = None, cause: str | None = None) -> Finding:
    """Return a finding that is a person's: no run mends a GPU."""
    kind = {HEALTHY: FindingClass.OK, WARNING: FindingClass.DRIFT}.get(value, FindingClass.ERROR)
    return replace(HEALTH.finding(kind, value, HEALTHY, of=of, cause=cause, remedy=_LOOK), by_person=True)
