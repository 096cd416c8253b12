"""What is to be done about power limits, clocks and ECC."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.components.power.decide import Desired, PowerChange, decide
from gpunode.components.power.state import Lock, Power
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpu
from tests.support.power import DEPRECATED, asked, gpus, right

pytestmark = pytest.mark.pure


SETTINGS = st.builds(
    lambda limit, clocks, ecc: asked(limit=limit, ecc=ecc, **clocks),
    limit=st.sampled_from([None, 200, 600, 700, 900]),
    clocks=st.sampled_from(
        [{}, {"application_clocks": "2619,1410"}, {"locked_graphics_clocks": "1200,1500"},
         {"locked_graphics_clocks": "0,345", "locked_memory_clocks": "2619,2619"}]
    ),
    ecc=st.sampled_from([None, None, True, False]),
)  # fmt: skip
GPU = st.fixed_dictionaries(
    {
        "power__limit": st.sampled_from(["700.00", "600.00", "[N/A]"]),
        "clocks__applications__graphics": st.sampled_from(["1980", "1410", DEPRECATED]),
        "clocks__gr": st.sampled_from(["345", "1980", "[N/A]"]),
        "ecc__mode__current": st.sampled_from(["Enabled", "Disabled"]),
        "ecc__mode__pending": st.sampled_from(["Enabled", "Disabled"]),
    }
)


def carried_out(change: PowerChange, settings: PowerSettings, actual: Power, gpu: Gpu) -> tuple[Power, Gpu]:
    """Return gpunode's state and a GPU as the script leaves them, by its tasks alone."""
    locks = {(lock.address, lock.kind): lock.value for lock in actual.locks}
    for task in change.tasks:
        if task.kind == "limit":
            gpu = replace(gpu, power=replace(gpu.power, limit=float(task.value)))
        elif task.kind == "application":
            memory, graphics = (
                gpu.clocks.default_application or (0, 0) if task.value == "default" else map(int, task.value.split(","))
            )
            gpu = replace(gpu, clocks=replace(gpu.clocks, application=(memory, graphics)))
        elif task.kind == "ecc":
            gpu = replace(gpu, ecc=replace(gpu.ecc, pending="Enabled" if task.value == "1" else "Disabled"))
        else:
            locks[task.address, task.kind] = task.value
            gpu = replace(gpu, clocks=replace(gpu.clocks, graphics=345))
    left = tuple(Lock(*key, value) for key, value in locks.items() if value != "default")
    if change.removed:
        return Power(locks=left), gpu
    return replace(right(settings, *left), enabled=actual.enabled or change.enable), gpu


@given(before=SETTINGS, settings=SETTINGS, told=GPU, allowed=st.sampled_from(list(Disruption)))
def test_every_difference_is_a_step_s_or_a_person_s_and_the_steps_leave_none_but_a_boot(
    before: PowerSettings, settings: PowerSettings, told: dict[str, str], allowed: Disruption
) -> None:
    actual, here = right(before), gpus(told)
    decision = decide(Desired(settings, allowed), actual, here)
    settled = {item for step in decision.steps for item in step.settles}
    assert all(item in settled or item.by_person for item in bad(*decision.findings))
    changes = [step.change for step in decision.steps if step.change is not None and not step.change.boots]
    if not changes:
        return
    assert all(each == changes[0] for each in changes)
    after, gpu = carried_out(changes[0], settings, actual, here.gpus[0])
    again = decide(Desired(settings, allowed), after, replace(here, gpus=(gpu,)))
    assert all(step.change is not None and step.change.boots for step in again.steps), again.steps
