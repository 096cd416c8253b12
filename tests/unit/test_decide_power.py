"""What is to be done about power limits, clocks and ECC."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.components.power.decide import Desired, PowerChange, decide
from gpunode.components.power.files import FILES, NAME, SCRIPT, UNIT
from gpunode.components.power.state import Lock, Power
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpu, Gpus
from tests.support.messages import unnamed
from tests.support.power import ADDRESS, DEPRECATED, FULL, H100, ONE, asked, digests, gpus, right, tasks

pytestmark = pytest.mark.pure


def test_a_node_of_which_nothing_is_asked_has_nothing_to_do_and_one_as_desired_neither() -> None:
    assert decide(Desired(asked()), Power(), ONE).findings == ()
    here = gpus({"power__limit": "600.00", "clocks__gr": "1410"})
    decision = decide(Desired(FULL), right(FULL, Lock(ADDRESS, "graphics", "1200,1500")), here)
    assert decision.steps == () and not bad(*decision.findings)
    (caution,) = [item for item in decision.findings if item.is_caution]
    assert caution.what == "persistence mode of GPU 0" and "driver.persistenced" in (caution.remedy or "")


def test_each_difference_is_a_task_and_the_files_come_with_them() -> None:
    decision = decide(Desired(FULL), Power(), ONE)
    assert [item.what for step in decision.steps for item in step.settles] == [
        "power limit of GPU 0", "locked graphics clocks of GPU 0",
        f"file {SCRIPT}", f"file {UNIT}", f"starts at boot: {NAME}",
    ]  # fmt: skip
    assert tasks(FULL) == [f"{ADDRESS} limit 600.00", f"{ADDRESS} graphics 1200,1500"]
    (change,) = {id(step.change): step.change for step in decision.steps}.values()
    assert change is not None and set(change.written) == set(FILES) and change.enable and not change.removed
    # Another value at the GPU alone: its unit stays as it is.
    only = decide(Desired(FULL), right(FULL, Lock(ADDRESS, "graphics", "1200,1500")), ONE).steps
    assert [item.what for step in only for item in step.settles] == ["power limit of GPU 0"]
    assert only[0].change is not None and not only[0].change.written and not only[0].change.enable


def test_a_clock_above_the_locked_ones_shows_that_the_lock_is_gone() -> None:
    known = right(FULL, Lock(ADDRESS, "graphics", "1200,1500"))
    for clock, told in (("1515", []), ("1980", [f"{ADDRESS} graphics 1200,1500"]), ("[N/A]", [])):
        assert tasks(FULL, known, gpus({"power__limit": "600.00", "clocks__gr": clock})) == told, clock


def test_what_is_no_longer_asked_for_goes_back_to_the_defaults_and_nothing_of_others_does() -> None:
    before = asked(limit=600, application_clocks="2619,1410")
    here = gpus({"power__limit": "600.00", "clocks__applications__graphics": "1410"})
    decision = decide(Desired(asked()), right(before), here)
    assert tasks(asked(), right(before), here) == [f"{ADDRESS} limit 700.00", f"{ADDRESS} application default"]
    assert [item.desired for item in bad(*decision.findings)][:2] == [
        "700 W, the GPU's default", "2619,1980 MHz, the GPU's default",
    ]  # fmt: skip
    assert decision.steps[0].change is not None and decision.steps[0].change.removed == FILES
    # Whoever set a limit by hand keeps it where gpunode set none.
    assert decide(Desired(asked()), Power(), here).steps == ()
    assert tasks(asked(limit=600), right(before), here) == [f"{ADDRESS} application default"]
    unlocked = right(FULL, Lock(ADDRESS, "graphics", "1200,1500"))
    assert tasks(asked(limit=700), unlocked, ONE) == [f"{ADDRESS} graphics default"]


@pytest.mark.parametrize(
    ("told", "gpu", "key", "said"),
    [
        ({"limit": 800}, {}, "power.limit: ", "takes 200 to 700 W, and 800 W"),
        ({"limit": 150}, {}, "power.limit: ", "takes 200 to 700 W, and 150 W"),
        ({"limits": {H100: 701}}, {}, f"power.limits['{H100}']: ", "701 W is asked for"),
        ({"limit": 600}, {"power__limit": "[N/A]"}, "power.limit: ", "tells no power limit"),
        (
            {"application_clocks": "2619,1980"}, {"clocks__applications__graphics": DEPRECATED},
            "power.application_clocks: ", "set power.locked_graphics_clocks",
        ),
        (
            {"application_clocks": "2619,1980"}, {"clocks__applications__graphics": "[Not Supported]"},
            "power.application_clocks: ", "tells no application clocks ([Not Supported])",
        ),
        ({"application_clocks": "2619,2100"}, {}, "power.application_clocks: ", "1980 MHz as its highest graphics"),
        ({"locked_memory_clocks": "2619,3000"}, {}, "power.locked_memory_clocks: ", "2619 MHz as its highest memory"),
        ({"ecc": True}, {"ecc__mode__current": "[N/A]"}, "power.ecc: ", "no ECC that can be switched ([N/A])"),
    ],
)  # fmt: skip
def test_what_a_gpu_does_not_take_is_refused_with_key_and_reason_before_anything_is_set(
    told: dict[str, Any], gpu: dict[str, str], key: str, said: str
) -> None:
    decision = decide(Desired(asked(**told)), Power(), gpus(gpu))
    assert decision.refusal is not None and not decision.steps
    assert f"{key}GPU 0 ({H100}) " in decision.refusal and said in decision.refusal
    assert "nothing was changed" in decision.refusal


def test_somebody_else_s_unit_is_refused_where_it_would_be_written_over() -> None:
    decision = decide(Desired(FULL), Power(foreign=(UNIT,)), ONE)
    assert decision.steps == () and decision.refusal is not None and unnamed(decision.refusal, UNIT) == []
    assert decide(Desired(asked()), Power(foreign=(UNIT,)), ONE).refusal is None


def test_ecc_is_set_at_once_and_waits_for_a_boot_as_the_settings_allow() -> None:
    off = asked(ecc=False)
    assert tasks(off) == [f"{ADDRESS} ecc 0"] and digests(off) == ()
    first, boot = decide(Desired(off), Power(), ONE).steps
    assert (first.action, first.disruption, first.waits) == ("set ECC of GPU 0", Disruption.nothing, None)
    assert (boot.disruption, boot.waits) == (Disruption.reboot, "disruption.allow is restart")
    later = gpus({"ecc__mode__pending": "Disabled"})
    decision = decide(Desired(off), Power(), later)
    (item,) = bad(*decision.findings)
    assert item.finding_class is FindingClass.REBOOT_PENDING and str(item.actual).startswith("Enabled, Disabled ")
    assert [step.waits for step in decision.steps] == ["disruption.allow is restart"]
    (allowed,) = decide(Desired(off, Disruption.reboot), Power(), later).steps
    assert allowed.waits is None and allowed.change == PowerChange(boots=True)
    after = gpus({"ecc__mode__pending": "Disabled", "ecc__mode__current": "Disabled"})
    assert decide(Desired(off), Power(), after).steps == ()
    # What is pending is taken back.
    (back,) = bad(*decide(Desired(asked(ecc=True)), Power(), later).findings)
    assert str(back.actual).startswith("Enabled, Disabled ")
    assert tasks(asked(ecc=True), Power(), later) == [f"{ADDRESS} ecc 1"]


def test_gpus_that_do_not_answer_are_told_and_nothing_is_decided_of_them() -> None:
    decision = decide(Desired(FULL), Power(), Gpus("no driver", 9, "no driver", ()))
    (item,) = decision.findings
    assert item.what == "power limits, clocks and ECC" and item.cause == "no GPU answers: no driver"
    assert [step.change for step in decision.steps] == [None]
    # Nothing is asked for any more: gpunode's files go all the same.
    (change, *_) = [step.change for step in decide(Desired(asked()), right(FULL), Gpus("no driver", 9, "", ())).steps]
    assert change is not None and change.removed == FILES and change.tasks == ()


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
