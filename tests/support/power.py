"""Helpers and data for the tests of power."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from gpunode.base.decision import Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.components.power.decide import Desired, PowerChange, decide
from gpunode.components.power.state import Lock, Power, rules, texts
from gpunode.settings import settings_from
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpus, parse_gpus
from tests.support.smi_rows import row

H100 = "NVIDIA H100 80GB HBM3"


DEPRECATED = "[Requested functionality has been deprecated]"


ADDRESS = "0000:1a:00.0"


def gpus(*told: dict[str, str]) -> Gpus:
    """Return GPUs as the probe's rows tell of them."""
    return parse_gpus(["gpu.rc=0", *(row(**each) for each in told)])


def asked(**told: Any) -> PowerSettings:
    return settings_from({"power": told}).power


ONE = gpus({})


NOTHING = Power()


FULL = asked(limit=600, locked_graphics_clocks="1200,1500")


def digests(settings: PowerSettings) -> tuple[tuple[str, str], ...]:
    return tuple((path, hashlib.sha256(text.encode()).hexdigest()) for path, text in texts(rules(settings)).items())


def right(settings: PowerSettings, *locks: Lock) -> Power:
    """Return what a run by these settings leaves."""
    lines = tuple(rule.line for rule in rules(settings))
    return Power(digests(settings), (), lines, bool(lines), locks)


def tasks(settings: PowerSettings, actual: Power = NOTHING, of: Gpus = ONE) -> list[str]:
    changes = [step.change for step in decide(Desired(settings), actual, of).steps]
    return [task.line for task in next((change.tasks for change in changes if change), ())]


@dataclass(frozen=True)
class Outcome:
    """Hold what is decided: findings that are bad, and cautions, steps, and the one change of all steps."""

    bad: tuple[Finding, ...]
    cautions: tuple[Finding, ...]
    steps: tuple[Step[PowerChange], ...]
    refusal: str | None
    tasks: tuple[str, ...]
    written: frozenset[str]
    removed: tuple[str, ...]
    enable: bool
    boots: bool


def decided(
    settings: dict[str, Any],
    gpu: dict[str, str] | None = None,
    before: dict[str, Any] | None = None,
    locked: str | None = None,
    silent: str | None = None,
    allowed: str = "restart",
    foreign: tuple[str, ...] = (),
    driver_waits: bool = False,
) -> Outcome:
    """Return what is decided for one H100, that differs so, after a run by `before` that locked its graphics clocks."""
    locks = (Lock(ADDRESS, "graphics", locked),) if locked else ()
    actual = right(asked(**before), *locks) if before is not None else Power(locks=locks)
    there = gpus(gpu or {}) if silent is None else Gpus(silent, 9, silent, ())
    desired = Desired(asked(**settings), Disruption[allowed], driver_waits)
    found = decide(desired, replace(actual, foreign=foreign), there)
    # All steps carry the same change, but for one that boots the node.
    changes = {id(step.change): step.change for step in found.steps if step.change and not step.change.boots}
    assert len(changes) < 2
    change = next(iter(changes.values()), PowerChange())
    return Outcome(
        tuple(bad(*found.findings)), tuple(item for item in found.findings if item.is_caution), found.steps,
        found.refusal, tuple(task.line for task in change.tasks), frozenset(change.written), change.removed,
        change.enable, any(step.change and step.change.boots for step in found.steps),
    )  # fmt: skip
