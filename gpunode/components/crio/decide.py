"""What is to be done about CRI-O: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gpunode.base import versions
from gpunode.base.comparison import RUN, by_hand, compared, configuration, not_known, pending, unrecorded
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.subject import Subject
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.crio.change import change, effective, path_of, wanted
from gpunode.components.crio.drop_in import Runtimes
from gpunode.components.crio.state import Crio
from gpunode.components.runtime import RuntimeChange
from gpunode.components.service_verdict import RUNNING, boot_verdict, masked_refusal, running_steps, service_verdict
from gpunode.settings.crio import known

_SUBJECTS = {
    "default_runtime": Subject.DEFAULT_RUNTIME,
    "cgroup_manager": Subject.CGROUP_DRIVER,
    "runtimes.nvidia.runtime_path": Subject.RUNTIME_NVIDIA,
}
_SILENT = "CRI-O runs, but `crio status config` gives no answer"
INSTALL = "install CRI-O as your cluster does (https://github.com/cri-o/packaging), or set crio.enabled = False"


@dataclass(frozen=True)
class Desired:
    """Hold what CRI-O is to be, and what a change of it may disturb; version: itself or its branch, None: any."""

    runtimes: Runtimes
    allowed: Disruption = Disruption.restart
    version: str | None = None


def decide(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return what is to be done about CRI-O, by what its daemon answers; gpunode installs none."""
    service, boots = service_verdict("crio.service", actual), boot_verdict("crio.service", actual)
    up = service.actual == RUNNING
    runs = compared("crio", Subject.SERVICE, service.actual, RUNNING, up, service.remedy, service.cause)
    at_boot = actual.enabled
    starts = compared("crio", Subject.STARTS_AT_BOOT, boots.actual, "yes", at_boot, boots.remedy, boots.cause)
    own = decide_configuration(desired, actual)
    steps = [step for step in own.steps if step.settles]
    # Behind a change that is refused the run comes to nothing else.
    steps += running_steps(runs, starts, own.refusal)
    return Decision((_version(desired, actual), runs, starts, *own.findings), tuple(steps), own.refusal)


def decide_configuration(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return what is to be done about the configuration of a CRI-O that is there, by which its operation goes."""
    said, disruption = effective(actual), Disruption.restart if actual.active else Disruption.nothing
    answers: tuple[Finding, ...] = tuple(
        not_known("crio", _SUBJECTS[key], value, _SILENT, f"look at `journalctl -u crio` on the node, and {RUN}")
        if actual.active and not actual.answers
        else compared("crio", _SUBJECTS[key], said[key], value, said[key] == value, disruption=disruption)
        for key, value in wanted(desired.runtimes).items()
    )
    to_come, refusal = _to_come(desired, actual)
    waits = _waits(desired, actual) if actual.active and bad(*answers) else None
    if to_come is not None and actual.masked and waits is None and refusal is None:
        refusal = masked_refusal("crio.service")
    files: tuple[Finding, ...] = ()
    if not bad(*answers) and (actual.answers or not actual.active):
        # For all that the daemon says: it starts by its files next.
        files = (configuration("crio", path_of(actual) if to_come is not None else None, refusal),)
        if actual.files is None and actual.version is not None:
            files = (unrecorded("crio"),)
    if refusal is not None:
        return Decision((*(by_hand(item, refusal) for item in answers), *files), (), refusal)
    if waits is not None:
        answers = tuple(pending(item, waits) for item in answers)
    steps = _steps(answers, files, actual, to_come)
    return Decision((*answers, *files), tuple(replace(step, waits=waits) for step in steps))


def _waits(desired: Desired, actual: Crio) -> str | None:
    """Return why a restart waits: containers outlive it, but the kubelet sees no runtime meanwhile."""
    if not is_forbidden(Disruption.restart, desired.allowed, actual.containers):
        return None
    return f"{actual.containers} containers run and disruption.allow is nothing"


def _version(desired: Desired, actual: Crio) -> Finding:
    rule, first = desired.version, known().first_with_cdi
    if actual.version is None:
        return by_hand(compared("crio", Subject.VERSION, None, rule or "any version with CDI", False), _absent(actual))
    good = versions.at_least(actual.version, first) if rule is None else versions.in_branch(actual.version, rule)
    item = compared("crio", Subject.VERSION, actual.version, rule or "any version with CDI", good)
    cause = f"crio.version is {rule}, and gpunode installs no CRI-O" if rule else f"{first} is the first with CDI"
    return by_hand(item, cause)


def _absent(actual: Crio) -> str:
    if actual.binary:
        return f"{actual.binary}, which the unit crio.service runs, is missing: install it again, or mend the unit"
    return f"there is no CRI-O, and gpunode installs none: {INSTALL}"


def _to_come(desired: Desired, actual: Crio) -> tuple[RuntimeChange | None, str | None]:
    """Return the change of file and daemon, None where there is none; and why a run cannot make it."""
    if actual.version is None:
        return None, _absent(actual)
    if actual.files is None:
        # Recorded facts have no text.
        return None, None
    try:
        to_come = change(actual, desired.runtimes)
    except ConfigurationRefused as refusal:
        return None, str(refusal)
    if actual.active and not actual.answers:
        return to_come, f"{_SILENT}; nothing was changed. Look at `journalctl -u crio` and run again"
    return to_come, None


def _steps(
    answers: tuple[Finding, ...], files: tuple[Finding, ...], actual: Crio, to_come: RuntimeChange | None
) -> Iterator[Step[RuntimeChange]]:
    """Yield the one step that settles all of it: one transaction brings file and daemon to what is desired."""
    settled = (*bad(*answers), *bad(*files))
    if settled:
        restart = " and restart it" if actual.active else ""
        action = f"bring its runtimes to what is asked{restart}" if bad(*answers) else "write its configuration file"
        yield Step(action, settled, settled[0].disruption or Disruption.nothing, change=to_come)
