"""What is to be done about DCGM: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from gpunode.base import versions
from gpunode.base.comparison import RUN, by_hand, compared, not_known
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject
from gpunode.components.dcgm.drop_ins import ENGINE, EXPORTER, variables
from gpunode.components.dcgm.health import HEALTHY, WARNING
from gpunode.components.dcgm.state import Dcgm, DcgmUnit
from gpunode.components.service_verdict import RUNNING, boot_verdict, running_steps, service_verdict
from gpunode.packages.installed_packages import satisfies
from gpunode.settings.dcgm import DcgmSettings, known

_LISTEN = "DCGM_EXPORTER_LISTEN"
# What it listens at where nothing tells it.
_BY_ITSELF = ":9400"
_LOG = "its own words are in /var/log/dcgm-exporter.log"
_LOOK = "look at `dcgmi health -c` on the node, drain it and run `dcgmi diag -r 2`; have what is broken replaced"


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
    return f"{', '.join(actual.former)} is installed (DCGM 3), beside which DCGM 4 cannot stand"


def decide(desired: Desired, actual: Dcgm) -> Decision[Change]:
    """Return what is to be done about DCGM on the host: what is there, what runs, by what, and how the GPUs are."""
    going = tuple(_going(desired, actual))
    steps = [Step(f"stop {unit} for good", (item,), Disruption.nothing, change=Change("remove", unit))
             for unit, item in going if bad(item)]  # fmt: skip
    beside = tuple(_units(desired, actual))
    if not desired.settings.enabled:
        return Decision((*(item for _, item in going), *beside), tuple(steps))
    refusal = in_the_way(desired.settings, actual)
    packages, pods = tuple(_packages(desired, actual)), (*_pods(desired, actual), *beside)
    if refusal is not None:
        told = (*(by_hand(item, refusal) for item in packages), *pods)
        return Decision((*(item for _, item in going), *told), (), refusal)
    if bad(*packages):
        names = tuple(desired.packages) + ((known().exporter,) if desired.settings.exporter.enabled else ())
        steps.append(Step("install DCGM", bad(*packages), Disruption.nothing, packages=names))
    findings = [*(item for _, item in going), *packages, *pods]
    for unit in desired.units:
        state = actual.units[unit] or DcgmUnit()
        runs, starts = _service(unit, state)
        read = _read(unit, state)
        findings += (runs, starts, *read)
        steps += (Step("have systemd read its files", (item,), Disruption.nothing, change=Change("read", unit))
                  for item in bad(*read))  # fmt: skip
        steps += running_steps(runs, starts)
    if EXPORTER in desired.units and actual.exporter is not None and actual.exporter.active:
        runs_by = tuple(_runs_by(desired, actual))
        findings += runs_by
        if own := tuple(item for item in bad(*runs_by) if not item.by_person):
            steps.append(Step("restart the exporter", own, Disruption.nothing, change=Change("restart", EXPORTER)))
    if desired.settings.health and actual.engine is not None and actual.engine.active:
        for item in _health(actual):
            findings.append(item)
            if item.what == Subject.HEALTH_WATCHES and bad(item):
                change = Change("watch")
                steps.append(Step("have the GPUs' health watched", (item,), Disruption.nothing, change=change))
    return Decision(tuple(findings), tuple(steps))


def _going(desired: Desired, actual: Dcgm) -> Iterator[tuple[str, Finding]]:
    for unit in gone(desired, actual):
        state = actual.units[unit] or DcgmUnit()
        words = ["running"] * state.active + ["starts at boot"] * state.enabled
        shown = ", ".join(words) or "stopped"
        yield unit, compared("dcgm", Subject.SERVICE.of(unit), shown, "stopped", not words)


def _packages(desired: Desired, actual: Dcgm) -> Iterator[Finding]:
    """Judge DCGM's version, whether its packages are there and of one version, and the exporter's version."""
    rule, core, there = desired.settings.version, actual.version, dict(actual.packages)
    good = core is not None and satisfies(core, rule)
    yield compared("dcgm", Subject.VERSION, core, rule or "any version of DCGM 4", good)
    lacking = [name for name in desired.packages if core is None or not _is_of(there.get(name), core)]
    shown = f"without {', '.join(lacking)}" if lacking else "complete"
    cause = "they need each other at one version"
    yield compared("dcgm", Subject.PACKAGES, shown, "complete", not lacking, cause=cause)
    exporter = desired.settings.exporter
    if exporter.enabled:
        version = there.get(known().exporter)
        good = version is not None and satisfies(version, exporter.version)
        yield compared("dcgm", Subject.EXPORTER, version, exporter.version or "any version", good)


def _is_of(version: str | None, core: str) -> bool:
    try:
        return version is not None and versions.same(version, core)
    except versions.VersionError:
        return False


def _units(desired: Desired, actual: Dcgm) -> Iterator[Finding]:
    """Judge whether the host has DCGM of its own where the chart brings the exporter; elsewhere there is nothing."""
    if desired.pods is not None:
        running = second_units(desired, actual)
        item = compared("dcgm", Subject.HOST_DCGM, ", ".join(running) or None, "none", not running)
        cause = (
            "the cluster's exporter is on this node, and the host runs DCGM that gpunode did not bring: of two engines "
            "one alone gets the profiles"
        )
        remedy = f"`systemctl disable --now {' '.join(running)}`, or set dcgm_exporter_chart.enabled = False"
        yield by_hand(item, f"{cause}; {remedy}")


def _pods(desired: Desired, actual: Dcgm) -> Iterator[Finding]:
    pods = second_pods(desired, actual)
    item = compared("dcgm", Subject.EXPORTER_PODS, ", ".join(pods) or None, "none", not pods)
    cause = (
        "the cluster has DCGM on this node, and the host has its own: each asks the GPUs, and one gets their profiles"
    )
    yield by_hand(item, f"{cause}; set dcgm.enabled = False, or leave the node out of the cluster's exporter")


def _service(unit: str, state: DcgmUnit) -> tuple[Finding, Finding]:
    service, boots = service_verdict(unit, state), boot_verdict(unit, state)
    good = service.actual == RUNNING
    cause = "; ".join(filter(None, (service.cause, _LOG))) if unit == EXPORTER and service.cause else service.cause
    return (
        compared("dcgm", Subject.SERVICE.of(unit), service.actual, RUNNING, good, service.remedy, cause),
        compared("dcgm", Subject.AT_BOOT.of(unit), boots.actual, "yes", state.enabled, boots.remedy, boots.cause),
    )


def _read(unit: str, state: DcgmUnit) -> tuple[Finding, ...]:
    shown = "changed since systemd read them" if state.outdated else "read"
    return (compared("dcgm", Subject.UNIT_FILES.of(unit), shown, "read", not state.outdated),)


def _runs_by(desired: Desired, actual: Dcgm) -> Iterator[Finding]:
    """Judge by what the exporter runs: where it listens, and the rest of what it was started with."""
    to_be, runs = variables(desired.settings.exporter), dict(actual.variables)
    listens = runs.get(_LISTEN, _BY_ITSELF)
    items = [compared("dcgm", Subject.EXPORTER_ADDRESS, listens, to_be[_LISTEN], listens == to_be[_LISTEN])]
    names = sorted(({*to_be, *runs} & _OURS) - {_LISTEN})
    wrong = [name for name in names if runs.get(name) != to_be.get(name)]
    shown = ", ".join(f"{name}={runs.get(name, '')}" for name in wrong) or "as desired"
    said = ", ".join(f"{name}={to_be.get(name, '')}" for name in wrong) or "as desired"
    items.append(compared("dcgm", Subject.RUNNING_CONFIGURATION, shown, said, not wrong))
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
        return f"the command line of {EXPORTER} says {', '.join(actual.flags)}, which counts more: take it out there"
    to_be, configured = variables(desired.settings.exporter), dict(actual.configured)
    is_read = actual.exporter is not None and not actual.exporter.outdated and dict(actual.told) == to_be
    other = [name for name in sorted(_OURS) if configured.get(name) != to_be.get(name)]
    if not is_read or not other:
        return None
    return f"another drop-in of {EXPORTER} says otherwise of {', '.join(other)} (`systemctl cat {EXPORTER}`)"


def _health(actual: Dcgm) -> Iterator[Finding]:
    """Judge whether the GPUs are watched, and what DCGM says of them."""
    found = actual.health
    if found is not None and found.error:
        remedy = f"look at `dcgmi health -c` and `journalctl -u {ENGINE}` on the node, and {RUN}"
        yield not_known("dcgm", Subject.DCGM_HEALTH, HEALTHY, f"dcgmi gives no answer: {found.error}", remedy)
        return
    watched = found is not None and found.watched
    yield compared("dcgm", Subject.HEALTH_WATCHES, "on" if watched else "off", "on", watched)
    if found is None or not watched:
        return
    for each in found.incidents:
        what = f"{Subject.DCGM_HEALTH} of {each.entity}: {each.system}"
        yield _told(what, each.value, _class_of(each.value), each.message or None, _LOOK)
    if not found.incidents:
        good = found.overall == HEALTHY
        item = compared("dcgm", Subject.DCGM_HEALTH, found.overall, HEALTHY, good)
        yield item if good else _told(item.what, str(found.overall), _class_of(str(found.overall)), None, _LOOK)


def _class_of(value: str) -> FindingClass:
    return {HEALTHY: FindingClass.OK, WARNING: FindingClass.DRIFT}.get(value, FindingClass.ERROR)


def _told(what: str, shown: str, kind: FindingClass, cause: str | None, remedy: str) -> Finding:
    """Return a finding that is a person's: no run mends a GPU."""
    return Finding("dcgm", kind, what, shown, HEALTHY, cause=cause, remedy=remedy, by_person=True)
