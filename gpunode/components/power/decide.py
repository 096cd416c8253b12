"""What is to be done about power limits, clocks and ECC: every comparison with what is desired, and the steps.

What a GPU does not take is refused before anything is told to any GPU.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gpunode.base.comparison import AS_DESIRED, REBOOT, RUN, awaits_boot, by_hand, file_message, finding_message
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.power.state import (
    APPLICATION,
    FILES,
    GRAPHICS,
    LIMIT,
    MEMORY,
    NAME,
    OFF,
    ON,
    Power,
    Rule,
    known,
    obstacles,
    pair,
    rule_for,
    rules,
    texts,
)
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpu, Gpus
from gpunode.system.smi import DRIVERLESS

DEFAULT = "default"
_NO_ANSWER = "no GPU answers: {message}"
_ON_DISK, _BOOT = "no GPU answers before the node has booted into the driver on disk", f"boot the node, and {RUN}"
_LEFT_OUT = "power.limits has no {name!r}; it has {names}"
_NAME_IT = "name it there as nvidia-smi does, or set power.limit"
_BY_BOOT = "a GPU changes its mode of ECC with a boot alone"
_ALLOW_BOOT = f"drain and reboot the node, or set disruption.allow = 'reboot', and {RUN}"
_FORGETS = "without it the driver forgets limits and clocks when the last program ends"
_declared = partial(finding_message, "power")
POWER = _declared(
    "power limits, clocks and ECC",
    "Power limits, clocks and ECC modes are not known: no GPU answers.",
    "The driver reports them, and it is not loaded or does not answer.",
    classes=REBOOT,
    causes=(_NO_ANSWER, _ON_DISK),
    remedies=(RUN, _BOOT),
)
POWER_LIMIT = _declared(
    "power limit of GPU",
    "A GPU's power limit is not the one that the settings ask for.",
    "A GPU forgets it at a boot or reset. It draws more power than planned, or is slower than the others.",
    causes=(_LEFT_OUT,),
    remedies=(RUN, _NAME_IT),
)
FILE = file_message("power")
APPLICATION_CLOCKS = _declared(
    "application clocks of GPU",
    "A GPU's application clocks are not those that the settings ask for.",
    "A GPU forgets them at a boot or reset. It is faster or slower than the others.",
)
_LOCKED = {
    kind: _declared(
        f"locked {name} clocks of GPU",
        f"A GPU's {name} clocks are not locked as the settings ask.",
        "gpunode notes what it locked since the driver was loaded; another program may have changed it since.",
        cause="no driver reports which clocks are locked: gpunode notes what it locked since the driver was loaded",
    )
    for kind, name in ((GRAPHICS, "graphics"), (MEMORY, "memory"))
}
ECC = _declared(
    "ECC of GPU",
    "A GPU's ECC mode is not the one that the settings ask for.",
    "Without ECC errors of the memory go unnoticed. The mode changes with a boot alone.",
    causes=(_BY_BOOT,),
    remedies=(RUN, _ALLOW_BOOT),
    classes=REBOOT,
)
PERSISTENCE_MODE = _declared(
    "persistence mode of GPU",
    "Persistence mode of a GPU is off, so the GPU forgets limits and clocks.",
    "It is a caution: with persistence mode a GPU keeps them when its last program ends.",
    causes=(_FORGETS,),
    remedies=("have nvidia-persistenced run (driver.persistenced)",),
    classes=(),
)
AT_BOOT = _declared(
    "starts at boot:",
    "The service that sets power limits and clocks does not start at boot.",
    "After the next boot the GPUs will have their defaults.",
)


@dataclass(frozen=True)
class Desired:
    """Hold the settings, and what a change may disturb; `driver_waits`: another driver is on disk than loaded."""

    settings: PowerSettings
    allowed: Disruption = Disruption.restart
    driver_waits: bool = False


@dataclass(frozen=True)
class Task:
    """Hold one thing that a GPU is told: its PCI address, the kind, the value as power_apply.sh takes it."""

    address: str
    kind: str
    value: str

    @property
    def line(self) -> str:
        """Return the task as the script reads it."""
        return f"{self.address} {self.kind} {self.value}"


@dataclass(frozen=True)
class PowerChange:
    """Hold what one script does: what GPUs are told, `written` path -> text, `removed` paths, whether the unit is to
    start at boot; or, with `boots`, nothing of that: the node is booted, for a mode of ECC."""

    tasks: tuple[Task, ...] = ()
    written: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    enable: bool = False
    boots: bool = False


def decide(desired: Desired, actual: Power, gpus: Gpus) -> Decision[PowerChange]:
    """Return what is to be done about each GPU, and about the unit that brings limits and clocks back.

    What was not asked for by a former run, whose rules stand in gpunode's script, is left as it is.
    """
    settings, every = desired.settings, rules(desired.settings)
    files, changed, gone = _files(every, actual)
    if settings.is_asked and gpus.status != "ok":
        return _unanswered(desired, gpus)
    reasons = [reason for gpu in gpus.gpus for reason in obstacles(settings, every, gpu)]
    if every:
        reasons += [f"{path} is not of gpunode's making, and would be written over; move it" for path in actual.foreign]
    told: list[tuple[Finding, Task | None]] = []
    for gpu in gpus.gpus:
        told += _limit(every, actual, gpu)
        told += _uncovered(settings, every, gpu)
        told += _application(every, actual, gpu)
        told += _locked(every, actual, gpu)
        told += _ecc(settings, gpu)
        told += _persistence(every, gpu)
    findings = (*(item for item, _ in told), *files)
    if reasons:
        refusal = f"power: {'; '.join(reasons)}; nothing was changed"
        return Decision(tuple(by_hand(item, "; ".join(reasons)) for item in findings), (), refusal)
    change = PowerChange(
        tuple(task for _, task in told if task is not None), changed, gone, bool(every) and not actual.enabled
    )
    done = (*(item for item, task in told if task is not None), *bad(*files))
    steps = [Step(_action(item), (item,), Disruption.nothing, None, change, felt=False) for item in done]
    pending = tuple(item for item in bad(*findings) if item.finding_class is FindingClass.REBOOT_PENDING)
    # One that takes back what waits for a boot needs none.
    ahead = {gpu.pci_address for gpu in gpus.gpus if settings.ecc is not None and gpu.ecc.current != _mode(settings)}
    coming = any(task is not None and task.kind == "ecc" and task.address in ahead for _, task in told)
    if pending or coming:
        forbidden = is_forbidden(Disruption.reboot, desired.allowed, 0)
        waits = f"disruption.allow is {desired.allowed.name}" if forbidden else None
        found, to_be = (None, None) if pending else ("as it was", "as it is set")
        action, boots = "boot the node into the mode of ECC", PowerChange(boots=True)
        steps.append(Step(action, pending, Disruption.reboot, waits, boots, found, to_be))
    return Decision(findings, tuple(steps))


def _unanswered(desired: Desired, gpus: Gpus) -> Decision[PowerChange]:
    """Decide where no GPU answers: the driver is to come, a boot comes before it, or the GPUs are not well."""
    cause = _NO_ANSWER.format(message=gpus.message or gpus.status)
    if gpus.status not in DRIVERLESS:
        remedy = "mend what the findings of the driver tell of nvidia-smi"
        return Decision((POWER.not_known(AS_DESIRED, cause, remedy),))
    item = POWER.compared("not told", AS_DESIRED, False, cause=cause)
    waits = None
    if desired.driver_waits:
        item = awaits_boot(item, _ON_DISK, _BOOT)
        waits = item.cause if is_forbidden(Disruption.reboot, desired.allowed, 0) else None
    disruption = item.disruption or Disruption.nothing
    return Decision((item,), (Step("set power limits, clocks and ECC", (item,), disruption, waits),))


def _uncovered(settings: PowerSettings, every: Sequence[Rule], gpu: Gpu) -> Iterator[tuple[Finding, None]]:
    """Tell of a GPU that limits by name leave out: a name that is not quite its own would cap nothing."""
    if settings.limits and rule_for(every, LIMIT, gpu.name) is None:
        item = POWER_LIMIT.compared("not set", "not set", True, of=str(gpu.index))
        cause = _LEFT_OUT.format(name=gpu.name, names=", ".join(sorted(settings.limits)))
        yield replace(item, cause=cause, remedy=_NAME_IT), None


def _mode(settings: PowerSettings) -> str:
    return ON if settings.ecc else OFF


def _limit(every: Sequence[Rule], actual: Power, gpu: Gpu) -> Iterator[tuple[Finding, Task | None]]:
    rule, watts = rule_for(every, LIMIT, gpu.name), gpu.power.default
    if rule is not None:
        watts = float(rule.value)
    elif rule_for(actual.parsed_rules, LIMIT, gpu.name) is None:
        return
    of = str(gpu.index)
    if watts is None:
        cause = "nvidia-smi does not tell the GPU's default limit, which it is to have again"
        remedy = "run `nvidia-smi --query --display=POWER` on the node, and set power.limit to what it was"
        yield POWER_LIMIT.not_known("the GPU's default", cause, remedy, of=of), None
        return
    to_be = f"{watts:.2f}"
    good = gpu.power.limit is not None and f"{gpu.power.limit:.2f}" == to_be
    shown = None if gpu.power.limit is None else f"{gpu.power.limit:g} W"
    said = f"{watts:g} W" if rule else f"{watts:g} W, the GPU's default"
    item = POWER_LIMIT.compared(shown, said, good, of=of)
    yield item, None if good else Task(gpu.pci_address, LIMIT, to_be)


def _application(every: Sequence[Rule], actual: Power, gpu: Gpu) -> Iterator[tuple[Finding, Task | None]]:
    rule, clocks = rule_for(every, APPLICATION, gpu.name), gpu.clocks
    if rule is None and (rule_for(actual.parsed_rules, APPLICATION, gpu.name) is None or clocks.application is None):
        return
    found, to_be = pair(clocks.application), rule.value if rule else pair(clocks.default_application)
    good = found == to_be
    said = f"{to_be} MHz" if rule else f"{to_be} MHz, the GPU's default"
    item = APPLICATION_CLOCKS.compared(found and f"{found} MHz", said, good, of=str(gpu.index))
    yield item, None if good else Task(gpu.pci_address, APPLICATION, rule.value if rule else DEFAULT)


def _locked(every: Sequence[Rule], actual: Power, gpu: Gpu) -> Iterator[tuple[Finding, Task | None]]:
    for kind in _LOCKED:
        rule, lock = rule_for(every, kind, gpu.name), actual.lock(gpu.pci_address, kind)
        if rule is None and lock is None:
            continue
        now = gpu.clocks.graphics if kind == GRAPHICS else gpu.clocks.memory
        highest = int(rule.value.split(",")[1]) + int(known().clock_step_mhz) if rule else 0
        beyond = rule is not None and lock == rule.value and now is not None and now > highest
        good = rule is not None and lock == rule.value and not beyond
        found = f"{now} MHz" if beyond else None if lock is None else f"{lock} MHz"
        to_be = f"{rule.value} MHz" if rule else "none"
        item = _LOCKED[kind].compared(found, to_be, good, of=str(gpu.index))
        yield item, None if good else Task(gpu.pci_address, kind, rule.value if rule else DEFAULT)


def _ecc(settings: PowerSettings, gpu: Gpu) -> Iterator[tuple[Finding, Task | None]]:
    if settings.ecc is None:
        return
    to_be = _mode(settings)
    of = str(gpu.index)
    if gpu.ecc.pending != to_be:
        found = gpu.ecc.current if gpu.ecc.current != to_be else f"{to_be}, {gpu.ecc.pending} after the next boot"
        yield ECC.compared(found, to_be, False, of=of), Task(gpu.pci_address, "ecc", str(int(settings.ecc)))
        return
    item = ECC.compared(gpu.ecc.current, to_be, gpu.ecc.current == to_be, of=of)
    if gpu.ecc.current != to_be:
        item = replace(item, actual=f"{gpu.ecc.current}, {to_be} after the next boot")
        item = awaits_boot(item, _BY_BOOT, _ALLOW_BOOT)
    yield item, None


def _persistence(every: Sequence[Rule], gpu: Gpu) -> Iterator[tuple[Finding, Task | None]]:
    """Tell of a driver that forgets all of it when the last program ends; who mends that is driver.persistenced."""
    if every and gpu.persistence_mode == OFF:
        item = PERSISTENCE_MODE.compared(gpu.persistence_mode, ON, True, of=str(gpu.index))
        yield replace(item, cause=_FORGETS, remedy=PERSISTENCE_MODE.remedies[0]), None


def _files(every: Sequence[Rule], actual: Power) -> tuple[tuple[Finding, ...], dict[str, str], tuple[str, ...]]:
    """Return findings about the files and the unit, path -> text of those to be written, and those to be removed."""
    wanted, there = texts(every), dict(actual.files)
    digests = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in wanted.items()}
    changed = {path: text for path, text in wanted.items() if there.get(path) != digests[path]}
    gone = tuple(path for path in FILES if path in there and path not in wanted)
    found = []
    for path in (*wanted, *gone):
        shown = "another text" if path in there else None
        if path not in changed:
            shown = "there" if path in gone else AS_DESIRED
        to_be = "none" if path in gone else AS_DESIRED
        good = path not in gone and path not in changed
        found.append(FILE.compared(shown, to_be, good, of=path))
    if wanted:
        at_boot = "yes" if actual.enabled else "no"
        found.append(AT_BOOT.compared(at_boot, "yes", actual.enabled, of=NAME))
    return tuple(found), changed, gone


def _action(item: Finding) -> str:
    if path := FILE.named(item):
        return f"remove {path}" if item.desired == "none" else f"write {path} anew"
    if unit := AT_BOOT.named(item):
        return f"start {unit} at boot"
    return f"unlock the {item.what.removeprefix('locked ')}" if item.desired == "none" else f"set {item.what}"
