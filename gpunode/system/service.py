"""One systemd unit: whether its daemon stays up (gpunode/system/unit.sh), its findings, and the steps that start it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from gpunode.base.comparison import RUN, FindingMessage
from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.probe_output import number, repeated, timestamp, values
from gpunode.base.reading import ParseError, Reading

# "Sun 2026-11-22 22:03:24.123456 UTC"; without the part of a second by systemd up to 250.
_TIMESTAMP = re.compile(r"\w{3} (\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(\.\d{1,6})? UTC", re.ASCII)


def seconds(timestamp: str) -> float:
    """Return a timestamp as seconds since the epoch; raise ParseError where it is none.

    Of whole seconds it is the end: what was written in the second in which a daemon started may have been there before,
    and whoever took it for newer would restart the daemon in each run.
    """
    match = _TIMESTAMP.fullmatch(timestamp.strip())
    try:
        if match is None:
            raise ValueError("of another form")
        whole = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise ParseError(f"not a timestamp of systemd's: {timestamp[:60]!r}: {error}") from error
    return float(f"{int(whole.timestamp())}{match[2] or '.999999'}")


# Seconds. A daemon that cannot do what its configuration asks ends within a few of them; systemd's own pause before it
# starts one again is 5 s in containerd's unit, and 2 s in docker's.
STEADY = 10.0
# As a finding names it.
RESTARTING = "restarting"


@dataclass(frozen=True)
class ServiceState(Reading):
    """Hold whether a daemon's unit stays up.

    `sub_state` and `result` (of its last end) are systemd's. `restarts` counts how often systemd started it again by
    itself since somebody started it. `young` are the seconds since it became active, as long as these are fewer than
    STEADY, by the kernel's clock that nobody sets; None where it is older, not active, or that clock is another one
    than systemd's (a container that shows its own). `said` are the lines of its journal that tell how it ended; none
    where it stays up.
    """

    sub_state: str = ""
    restarts: int = 0
    young: float | None = None
    said: tuple[str, ...] = ()
    result: str = "success"

    @property
    def failed(self) -> bool:
        """Say whether it ended by itself, and systemd leaves it at that."""
        return self.sub_state == "failed"

    @property
    def restarting(self) -> bool:
        """Say whether it ends and is started again: systemd is about to, or did a moment ago."""
        if self.sub_state.startswith("auto-restart"):
            return True
        # Between its end and its next start, systemd calls it dead for a moment, as one that somebody stopped.
        under_way = self.sub_state.startswith("start") or (self.sub_state == "dead" and self.result != "success")
        return self.restarts > 0 and (self.young is not None or under_way)


@dataclass(frozen=True)
class Confidential(Reading):
    """A reading with texts that may hold credentials: the fields with repr=False are in no output."""

    def to_json(self) -> dict[str, Any]:
        """Return the other fields as plain JSON types."""
        hidden = {each.name for each in fields(self) if not each.repr}
        return {key: value for key, value in super().to_json().items() if key not in hidden}


@dataclass(frozen=True, kw_only=True)
class Daemon(Confidential):
    """A daemon: whether its unit runs, starts at boot, and is masked (somebody forbade that it is started)."""

    active: bool = False
    enabled: bool = False
    masked: bool = False
    service: ServiceState = field(default_factory=ServiceState)


def daemon(lines: list[str], running: Collection[str] = ("active",)) -> dict[str, Any]:
    """Parse what a probe prints of a unit into the fields of Daemon; running: the states in which it runs."""
    found = values(lines)
    state = found.get("UnitFileState")
    return {
        "active": found.get("ActiveState") in running,
        "enabled": starts_at_boot(state),
        "masked": is_masked(state),
        "service": parse_service(lines),
    }


def parse_service(lines: list[str]) -> ServiceState:
    """Parse what `tell_service` of gpunode/system/unit.sh prints; raise ParseError."""
    found = values(lines)
    restarts = number(found.get("restarts", "0"))
    up = timestamp(found["up"]) / 100 if "up" in found else None
    said = tuple(dict.fromkeys(repeated(lines, "said")))
    young = up if up is not None and 0 <= up < STEADY else None
    return ServiceState(found.get("SubState", ""), restarts, young, said, found.get("Result", "success"))


def seconds_until_steady(services: Iterable[ServiceState], since: float) -> float:
    """Return how long to wait until each daemon that was started of late has shown that it stays up; 0: not at all.

    since: seconds ago; of what was started before that, only what systemd started again is waited for: a person may
    have mended and restarted it a moment ago
    """
    waits = (
        STEADY - each.young for each in services if each.young is not None and (each.restarts or each.young < since)
    )
    return max(waits, default=0.0)


@dataclass(frozen=True)
class Unit(Reading):
    """Hold systemd's states of a unit as `systemctl show` names them."""

    load_state: str
    active_state: str
    sub_state: str
    unit_file_state: str | None

    @property
    def running(self) -> bool:
        """Say whether the unit is active, or on its way there."""
        return self.active_state in ("active", "activating", "reloading")

    @property
    def enabled(self) -> bool:
        """Say whether the unit starts at boot."""
        return starts_at_boot(self.unit_file_state)

    @property
    def masked(self) -> bool:
        """Say whether somebody forbade that it is ever started."""
        return is_masked(self.unit_file_state) or self.load_state == "masked"


def is_masked(unit_file_state: str | None) -> bool:
    """Judge systemd's UnitFileState: a masked unit is neither started nor enabled, until it is unmasked."""
    return unit_file_state in ("masked", "masked-runtime")


def unmask(unit: str) -> str:
    """Return what to do about a masked unit."""
    return f"`systemctl unmask {unit}` on the node"


def starts_at_boot(unit_file_state: str | None) -> bool:
    """Judge systemd's UnitFileState; a static or generated unit needs no enabling, `enabled-runtime` ends at a boot."""
    return unit_file_state in ("enabled", "static", "alias", "generated")


def parse_unit(lines: list[str]) -> Unit:
    """Parse LoadState, ActiveState, SubState and UnitFileState as `systemctl show` prints them."""
    found = values(lines)
    if not found.get("LoadState") or not found.get("ActiveState"):
        raise ParseError("systemd gave no answer")
    return Unit(found["LoadState"], found["ActiveState"], found.get("SubState", ""), found.get("UnitFileState"))


RUNNING, MASKED = "running", "masked"
_REPAIR = f"look at `journalctl -u {{unit}}` on the node, correct what ends it, `systemctl restart {{unit}}`, and {RUN}"
# What a person does about a service that does not run, or does not start at boot.
MEND_SERVICE = (RUN, _REPAIR, f"{unmask('{unit}')}, and {RUN}")
MEND_BOOT = (RUN, MEND_SERVICE[-1])


@dataclass(frozen=True)
class ServiceVerdict:
    """Whether a service runs, or starts at boot; if not, its cause and remedy."""

    actual: str
    remedy: str = RUN
    cause: str | None = None


def service_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return whether a runtime's unit runs: `running` where it stays up."""
    state = actual.service
    journal = f"; its journal says: {' | '.join(state.said)}" if state.said else ""
    repair = _REPAIR.format(unit=unit)
    if state.restarting:
        times = f", {state.restarts} times so far" if state.restarts > 1 else ""
        return ServiceVerdict(RESTARTING, repair, f"it ends by itself, and systemd starts it again{times}{journal}")
    if actual.active:
        return ServiceVerdict(RUNNING)
    if actual.masked:
        return _masked(unit)
    if state.failed:
        return ServiceVerdict("failed", repair, f"it ended by itself{journal}")
    return ServiceVerdict("stopped")


def boot_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return whether a runtime's unit starts at boot: yes, no or masked."""
    if actual.masked and not actual.enabled:
        return _masked(unit)
    return ServiceVerdict("yes" if actual.enabled else "no")


def _masked(unit: str) -> ServiceVerdict:
    return ServiceVerdict(MASKED, f"{unmask(unit)}, and {RUN}", "it is masked, which forbids to start it")


def masked_refusal(unit: str) -> str:
    """Return why a run does not start a masked unit."""
    remedy = f"undo that by {unmask(unit)}, and {RUN}"
    return f"{unit} is masked, which forbids to start it; nothing was changed. Remedy: {remedy}"


def missing_program(unit: str, binary: str) -> str:
    """Return why a run stops at a unit whose program is missing."""
    return (
        f"{binary}, which the unit {unit} runs, is missing; nothing was changed. Remedy: install its package again, or "
        "correct the unit"
    )


def service_findings(
    unit: str, state: Daemon, runs: FindingMessage, starts: FindingMessage, of: str | None = None
) -> tuple[Finding, Finding]:
    """Return the findings about a unit: whether it runs, and whether it starts at boot."""
    service, boots = service_verdict(unit, state), boot_verdict(unit, state)
    good = service.actual == RUNNING
    return (
        runs.compared(service.actual, RUNNING, good, of=of, cause=service.cause, remedy=service.remedy),
        starts.compared(boots.actual, "yes", state.enabled, of=of, cause=boots.cause, remedy=boots.remedy),
    )


def refused_start(unit: str, runs: Finding, starts: Finding) -> str | None:
    """Return why a run stops at a unit that it would start; None where the unit is not masked."""
    return masked_refusal(unit) if MASKED in (runs.actual, starts.actual) else None


def running_steps(runs: Finding, starts: Finding, waits: str | None = None) -> Iterator[Step[Any]]:
    """Yield the steps that start a service now and at boot; none for a unit that restarts, or is masked.

    waits: why a run does not come to the service
    """
    for item, action in ((runs, "start it"), (starts, "start it at boot")):
        if bad(item) and item.actual not in (RESTARTING, MASKED):
            yield Step(action, (item,), item.disruption or Disruption.nothing, waits)
