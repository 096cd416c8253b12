"""What is to be done about CRI-O: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpunode.base import versions
from gpunode.base.comparison import (
    BY_HAND,
    DRIFT,
    RUN,
    by_hand,
    configuration,
    configuration_files,
    pending,
    unrecorded,
)
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.crio.change import Runtimes, change, effective, path_of, wanted
from gpunode.components.crio.state import Crio
from gpunode.components.runtime import (
    MEND_BOOT,
    MEND_SERVICE,
    RESTART_FORBIDDEN,
    RuntimeChange,
    blocked_reason,
    masked_refusal,
    restart_of,
    running_steps,
    runtime_finding,
    service_findings,
)
from gpunode.settings.runtimes import first_crio_with_cdi

if TYPE_CHECKING:
    from gpunode.settings import Settings

_SILENT = "CRI-O runs, but `crio status config` gives no answer"
INSTALL = "install CRI-O as your cluster does (https://github.com/cri-o/packaging), or set crio.enabled = False"

_MISSING = "{binary}, which the unit crio.service runs, is missing. Remedy: install it again, or correct the unit"
_ABSENT = f"there is no CRI-O, and gpunode installs none. Remedy: {INSTALL}"
_OTHER = "crio.version is {rule}, and gpunode installs no CRI-O. Remedy: install that version, or set crio.version"
_OLD = "{version} is the first with CDI. Remedy: install that version or a newer one"
SERVICE = runtime_finding("crio", "service", remedies=MEND_SERVICE, classes=DRIFT)
STARTS_AT_BOOT = runtime_finding("crio", "starts at boot", remedies=MEND_BOOT, classes=DRIFT)
VERSION = runtime_finding("crio", "version", _MISSING, _ABSENT, _OTHER, _OLD, remedies=(BY_HAND,), classes=DRIFT)
CONFIGURATION = configuration_files("crio")
_KEYS = {
    "default_runtime": runtime_finding("crio", "default runtime", RESTART_FORBIDDEN),
    "cgroup_manager": runtime_finding("crio", "cgroup driver", RESTART_FORBIDDEN),
    "runtimes.nvidia.runtime_path": runtime_finding("crio", "runtime nvidia", RESTART_FORBIDDEN),
}


@dataclass(frozen=True)
class Desired:
    """Hold what CRI-O is to be, and what a change of it may disturb; version: itself or its branch, None: any."""

    runtimes: Runtimes
    allowed: Disruption = Disruption.restart
    version: str | None = None


def desired_of(settings: Settings) -> Desired:
    """Return the CRI-O that the settings describe: for the deploy, its operation, drift and plan."""
    own = settings.crio
    runtimes = Runtimes(own.default_runtime, own.systemd_cgroup, settings.toolkit.enabled)
    return Desired(runtimes, Disruption[settings.disruption.allow], own.version)


def decide(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return what is to be done about CRI-O, by what its daemon answers; gpunode installs none."""
    runs, starts = service_findings("crio.service", actual, SERVICE, STARTS_AT_BOOT)
    own = decide_configuration(desired, actual)
    steps = [step for step in own.steps if step.settles]
    # Behind a change that is refused the run comes to nothing else.
    steps += running_steps(runs, starts, own.refusal)
    return Decision((_version(desired, actual), runs, starts, *own.findings), tuple(steps), own.refusal)


def decide_configuration(desired: Desired, actual: Crio) -> Decision[RuntimeChange]:
    """Return what is to be done about the configuration of a CRI-O that is there, by which its operation goes."""
    said, disruption = effective(actual), restart_of(actual)
    answers: tuple[Finding, ...] = tuple(
        _KEYS[key].not_known(value, _SILENT, f"look at `journalctl -u crio` on the node, and {RUN}")
        if actual.active and not actual.answers
        else _KEYS[key].compared(said[key], value, said[key] == value, disruption=disruption)
        for key, value in wanted(desired.runtimes).items()
    )
    to_come, refusal = _to_come(desired, actual)
    waits = blocked_reason(desired.allowed, actual.containers) if actual.active and bad(*answers) else None
    if to_come is not None and actual.masked and waits is None and refusal is None:
        refusal = masked_refusal("crio.service")
    files: tuple[Finding, ...] = ()
    if not bad(*answers) and (actual.answers or not actual.active):
        # For all that the daemon says: it starts by its files next.
        files = (configuration(CONFIGURATION, path_of(actual) if to_come is not None else None, refusal),)
        if actual.files is None and actual.version is not None:
            files = (unrecorded(CONFIGURATION),)
    if refusal is not None:
        return Decision((*(by_hand(item, refusal) for item in answers), *files), (), refusal)
    if waits is not None:
        answers = tuple(pending(item, waits) for item in answers)
    steps = _steps(answers, files, actual, to_come)
    return Decision((*answers, *files), tuple(replace(step, waits=waits) for step in steps))


def _version(desired: Desired, actual: Crio) -> Finding:
    rule, first = desired.version, first_crio_with_cdi()
    if actual.version is None:
        return by_hand(VERSION.compared(None, rule or "any version with CDI", False), _absent(actual))
    good = versions.at_least(actual.version, first) if rule is None else versions.in_branch(actual.version, rule)
    item = VERSION.compared(actual.version, rule or "any version with CDI", good)
    cause = _OTHER.format(rule=rule) if rule else _OLD.format(version=first)
    return by_hand(item, cause)


def _absent(actual: Crio) -> str:
    if actual.binary:
        return _MISSING.format(binary=actual.binary)
    return _ABSENT


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
        return to_come, f"{_SILENT}; nothing was changed. Remedy: look at `journalctl -u crio` on the node, and {RUN}"
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
