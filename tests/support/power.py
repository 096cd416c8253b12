"""What several tests share with unit/test_power.py."""

from __future__ import annotations

import hashlib
from typing import Any

from gpunode.components.power.decide import Desired, decide
from gpunode.components.power.files import texts
from gpunode.components.power.rules import rules
from gpunode.components.power.state import Lock, Power
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
