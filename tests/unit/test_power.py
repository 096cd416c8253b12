"""Power limits, clocks and ECC: what the settings may say, what a GPU tells, and what the operation does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.base.reading import ParseError
from gpunode.components.power.decide import Desired, decide
from gpunode.components.power.files import NAME, SCRIPT, texts
from gpunode.components.power.rules import Rule, parsed, rule_for, rules
from gpunode.components.power.state import Lock, Power, parse_power
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.power import Power as PowerFact
from gpunode.node.plan import plan
from gpunode.node.preflight import cautions
from gpunode.operations import power
from gpunode.settings import SettingsError, settings_from
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpus
from gpunode.system.gpu_settings import Clocks, Ecc
from tests.support.messages import unnamed
from tests.support.power import ADDRESS, DEPRECATED, FULL, H100, ONE, asked, gpus
from tests.support.simulated_host import Host, commands
from tests.support.smi_rows import row
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("told", "key", "said"),
    [
        ({"limit": 0}, "power.limit", "1 or more"),
        ({"limit": "600"}, "power.limit", "whole number"),
        ({"limits": {H100: 0}}, "power.limits", "1 or more"),
        ({"limits": {"x'; reboot": 5}}, "power.limits", "nvidia-smi -L"),
        ({"application_clocks": "1980"}, "power.application_clocks", "memory, then graphics"),
        ({"locked_graphics_clocks": "1500,1200"}, "power.locked_graphics_clocks", "higher clock first"),
        (
            {"application_clocks": "2619,1980", "locked_memory_clocks": "2619,2619"},
            "power.application_clocks",
            "power.locked_memory_clocks",
        ),
        ({"ecc": 1}, "power.ecc", "True or False"),
    ],
)
def test_settings_that_contradict_themselves_are_refused_by_key(told: dict[str, Any], key: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_from({"power": told})
    assert key in str(refused.value) and said in str(refused.value)


def test_what_the_driver_would_forget_at_once_is_refused_and_so_is_a_driver_that_goes() -> None:
    with pytest.raises(SettingsError, match=r"set driver\.persistenced = True"):
        settings_from({"driver": {"persistenced": False}, "power": {"limit": 600}})
    settings_from({"driver": {"persistenced": False}, "power": {"ecc": False}})
    gone = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
    with pytest.raises(SettingsError, match=r"power.ecc.*needs the driver"):
        settings_from({**gone, "driver": {"source": "absent"}, "power": {"ecc": False}})


def test_a_rule_for_a_product_counts_before_the_one_for_every_gpu() -> None:
    every = rules(asked(limit=300, limits={H100: 600}, application_clocks="2619,1980"))
    assert [rule.line for rule in every] == [f"limit 600 {H100}", "limit 300 *", "application 2619,1980 *"]
    assert rule_for(every, "limit", H100) == Rule("limit", "600", H100)
    assert rule_for(every, "limit", "NVIDIA A30") == Rule("limit", "300")
    assert rule_for(every, "graphics", H100) is None


@given(
    limits=st.dictionaries(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,20}[A-Za-z0-9)]", fullmatch=True),
        st.integers(1, 2000),
        max_size=4,
    ),
    limit=st.none() | st.integers(1, 2000),
    clocks=st.none() | st.tuples(st.integers(100, 9999), st.integers(100, 9999)),
)
def test_rules_read_from_the_script_are_those_that_were_written(
    limits: dict[str, int], limit: int | None, clocks: tuple[int, int] | None
) -> None:
    desired = asked(
        limits=limits, limit=limit, application_clocks=None if clocks is None else f"{clocks[0]},{clocks[1]}"
    )
    every = rules(desired)
    assert parsed(rule.line for rule in every) == every
    if every:
        inside = texts(every)[SCRIPT].partition("rules='")[2].partition("\n'")[0]
        assert parsed(inside.splitlines()) == every


@given(st.lists(st.text(max_size=60), max_size=6))
def test_a_probe_s_lines_are_a_state_or_a_parse_error(lines: list[str]) -> None:
    noise = [f"{key}={line}" for key in ("file", "rule", "note", "module") for line in lines]
    try:
        state = parse_power([*lines, *noise])
    except ParseError:
        return
    assert all(len(digest) == 64 for _, digest in state.files)
    assert not state.locks or state.locks[0].kind in ("graphics", "memory")


def test_clocks_locked_by_an_earlier_load_of_the_driver_are_forgotten() -> None:
    note = ["note=module 71", f"note={ADDRESS} graphics 1200,1500", "note=nonsense"]
    assert parse_power([*note, "module=71"]).locks == (Lock(ADDRESS, "graphics", "1200,1500"),)
    assert parse_power([*note, "module=72"]).locks == ()
    assert parse_power(note).locks == ()
    with pytest.raises(ParseError):
        parse_power(["file=/usr/local/lib/gpunode/power"])


def test_a_gpu_tells_of_power_clocks_and_ecc_and_what_it_lacks_is_none() -> None:
    (gpu,) = ONE.gpus
    assert (gpu.power.limit, gpu.power.default, gpu.power.least, gpu.power.most) == (700.0, 700.0, 200.0, 700.0)
    assert gpu.clocks == Clocks((2619, 1980), (2619, 1980), "", 2619, 1980, 2619, 345)
    assert gpu.ecc == Ecc("Enabled", "Enabled")
    lacks = {name: "[N/A]" for name in ("power__limit", "clocks__max__graphics", "clocks__gr", "ecc__mode__current")}
    (bare,) = gpus({**lacks, "clocks__applications__graphics": DEPRECATED, "power__max_limit": "[Not Supported]"}).gpus
    assert (bare.power.limit, bare.power.most, bare.clocks.most_graphics, bare.clocks.graphics) == (None,) * 4
    assert (bare.clocks.application, bare.clocks.application_said) == (None, DEPRECATED)
    assert bare.ecc.current == "[N/A]"


@given(st.lists(st.from_regex(r"[ !#-+\--~]{0,20}", fullmatch=True), min_size=14, max_size=14))
def test_any_words_in_these_columns_are_numbers_or_nothing(words: list[str]) -> None:
    names = [name for name in row.__globals__["QUERY"] if name.startswith(("power.", "clocks.", "ecc.mode."))]
    told = {name.replace(".", "__"): word for name, word in zip(names, words, strict=True)}
    for gpu in gpus(told).gpus:
        assert gpu.power.limit is None or gpu.power.limit >= 0
        assert gpu.clocks.application is None or gpu.clocks.application_said == ""


def run(
    settings: PowerSettings, actual: Power, of: Gpus, allowed: str = "restart", **driver: Any
) -> tuple[list[str], Host]:
    host = Host({PowerFact: actual, GpusFact: of, DriverFact: replace(GOOD.driver, **driver)})
    with ctx_host.use(host):
        return commands(power.kept, host, settings=settings, allowed=allowed), host


def test_the_operation_tells_the_gpus_and_keeps_the_files_and_says_so_where_there_is_nothing_to_do() -> None:
    (command,), _ = run(FULL, Power(), ONE)
    assert f"'tasks={ADDRESS} limit 600.00\n{ADDRESS} graphics 1200,1500'" in command
    assert "enable=yes" in command and f"unit={NAME}" in command and "<<< " in command
    done, host = run(asked(), Power(), ONE)
    assert (done, len(host.noops), host.refusals) == ([], 1, [])
    refused, host = run(asked(limit=900), Power(), ONE)
    assert refused == [] and "power.limit: GPU 0" in host.refusals[0]
    later, host = run(asked(ecc=False), Power(), gpus({"ecc__mode__pending": "Disabled"}))
    (noop,) = host.noops
    assert later == [] and unnamed(noop, "reboot pending", "ECC", "disruption.allow", "restart") == []
    away, host = run(FULL, Power(), Gpus("no driver", 9, "no module", ()))
    (noop,) = host.noops
    assert (away, host.refusals) == ([], []) and unnamed(noop, "power", "no module") == []


def test_where_a_boot_comes_first_limits_wait_for_it_and_are_no_drift() -> None:
    silent = Gpus("mismatch", 18, "Driver/library version mismatch", ())
    for allowed, waits in ((Disruption.restart, True), (Disruption.reboot, False)):
        decision = decide(Desired(FULL, allowed, driver_waits=True), Power(), silent)
        (item,), (step,) = decision.findings, decision.steps
        assert item.finding_class is FindingClass.REBOOT_PENDING
        assert (step.waits is not None, step.change) == (waits, None)
    (item,) = decide(Desired(FULL), Power(), silent).findings
    assert item.finding_class is FindingClass.DRIFT


def test_a_gpu_that_limits_by_name_leave_out_is_told_with_its_name() -> None:
    name = ONE.gpus[0].name
    decision = decide(Desired(asked(limits={"H100": 600})), Power(), ONE)
    (told,) = [item for item in decision.findings if item.is_caution and "power limit" in item.what]
    assert name in str(told.cause) and "H100" in str(told.cause)
    for known in ({"limits": {name: 600}}, {"limits": {"H100": 600}, "limit": 650}):
        findings = decide(Desired(asked(**known)), Power(), ONE).findings
        assert not any(item.is_caution and "power limit" in item.what for item in findings)


def test_a_mode_of_ecc_that_is_taken_back_before_the_boot_needs_none() -> None:
    there = gpus({"ecc__mode__pending": "Disabled"})
    decision = decide(Desired(asked(ecc=True), Disruption.reboot), Power(), there)
    assert [step.disruption for step in decision.steps] == [Disruption.nothing]
    decision = decide(Desired(asked(ecc=False), Disruption.reboot), Power(), ONE)
    assert [step.disruption for step in decision.steps] == [Disruption.nothing, Disruption.reboot]


def test_a_boot_that_helped_while_nobody_looked_is_forgotten_once() -> None:
    right = gpus({"ecc__mode__current": "Disabled", "ecc__mode__pending": "Disabled"})
    (command,), host = run(asked(ecc=False), Power(), right, booted_for="ecc-off")
    assert "rm -f" in command and host.noops == []
    done, host = run(asked(ecc=False), Power(), right)
    assert done == [] and host.noops == ["power limits, clocks and ECC as desired"]


def test_the_plan_shows_the_steps_and_an_image_leaves_them_to_its_machine() -> None:
    settings = settings_from({**DATA, "power": {"limit": 600, "ecc": False}})
    steps = [step for step in plan(settings, replace(GOOD, gpus=ONE)).steps if step.component == "power"]
    assert (steps[0].code, steps[0].what) == ("power.power-limit-of-gpu", "power limit of GPU 0")
    assert (steps[0].actual, steps[0].desired, steps[0].pending) == ("700 W", "600 W", False)
    assert [step.pending for step in steps if step.disruption is Disruption.reboot] == [True]
    image = replace(GOOD.machine, operating_system=replace(GOOD.operating_system, booted=False))
    (told,) = [item.reason for item in cautions(settings, image) if "power" in item.reason]
    assert "power" in told
