"""Helpers and data for the tests of run end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.api.state import StateStage

from gpunode.base.comparison import RUN
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.coming import LIBRARY
from gpunode.components.driver.decide import FLAVOUR, GPU
from gpunode.fleet import run_end
from tests.support.simulated_host import Host

GOOD = tuple(message.finding(FindingClass.OK, "x", "x") for message in (FLAVOUR, GPU, LIBRARY))


RUNTIME = Finding(
    "containerd", FindingClass.DRIFT, "default runtime", "runc", "nvidia", "somebody edited it", RUN,
    disruption=Disruption.restart,
    code="containerd.default-runtime",
)  # fmt: skip


MODULE = Finding(
    "driver", FindingClass.REBOOT_PENDING, "loaded module", "570.172.08 (open)", "580.95.05 (open)",
    "the driver was changed while the old module was loaded", "reboot the node",
    disruption=Disruption.reboot,
    code="driver.loaded-module",
)  # fmt: skip


class _State:
    """Hold what a verdict reads of a run's state; a SimpleNamespace allows no weak reference."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)


def _state(host: Host, stage: StateStage = StateStage.Disconnect) -> Any:
    return _State(
        inventory=[host],
        current_stage=stage,
        is_host_in_limit=lambda each: True,
        get_op_meta=lambda op_hash: SimpleNamespace(names={op_hash}),
        ops={},
        active_hosts={host},
        failed_hosts=set(),
    )


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setattr(run_end, "logger", SimpleNamespace(info=told.append))
    return told
