"""Power limits, clocks and ECC: what the settings may say, what a GPU tells, and what the operation does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.disruption import Disruption
from gpunode.base.reading import ParseError
from gpunode.components.power.state import NAME, SCRIPT, Power, Rule, parse_power, parsed, rule_for, rules, texts
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Power as PowerFact
from gpunode.node.plan import plan
from gpunode.node.preflight import cautions
from gpunode.operations import power
from gpunode.settings import settings_from
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpus
from tests.support.messages import unnamed
from tests.support.power import ADDRESS, FULL, H100, ONE, asked, gpus
from tests.support.simulated_host import Host, commands
from tests.support.smi_rows import row
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure


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


def test_the_operation_tells_the_gpus_and_keeps_the_files() -> None:
    (command,), _ = run(FULL, Power(), ONE)
    assert f"'tasks={ADDRESS} limit 600.00\n{ADDRESS} graphics 1200,1500'" in command
    assert "enable=yes" in command and f"unit={NAME}" in command and "<<< " in command


OFF = {"ecc__mode__pending": "Disabled"}


@pytest.mark.parametrize(
    ("settings", "of", "noop", "refusal"),
    [
        ({}, ONE, [], None),
        ({"limit": 900}, ONE, None, ["power.limit", "GPU 0"]),
        ({"ecc": False}, gpus(OFF), ["reboot pending", "ECC", "disruption.allow", "restart"], None),
        ({"ecc": False}, gpus({**OFF, "ecc__mode__current": "Disabled"}), ["ECC"], None),
        ({"limit": 600}, Gpus("no driver", 9, "no module", ()), ["power", "no module"], None),
    ],
)
def test_where_the_operation_does_nothing_it_says_why(
    settings: dict[str, Any], of: Gpus, noop: list[str] | None, refusal: list[str] | None
) -> None:
    done, host = run(asked(**settings), Power(), of)
    assert done == []
    for expected, said in ((noop, host.noops), (refusal, host.refusals)):
        assert bool(said) is (expected is not None) and unnamed("".join(said), *(expected or ())) == []


def test_a_boot_that_helped_while_nobody_looked_is_forgotten_once() -> None:
    right = gpus({**OFF, "ecc__mode__current": "Disabled"})
    (command,), host = run(asked(ecc=False), Power(), right, booted_for="ecc-off")
    assert "rm -f" in command and host.noops == []


def test_the_plan_shows_the_steps_and_an_image_leaves_them_to_its_machine() -> None:
    settings = settings_from({**DATA, "power": {"limit": 600, "ecc": False}})
    steps = [step for step in plan(settings, replace(GOOD, gpus=ONE)).steps if step.component == "power"]
    assert (steps[0].code, steps[0].what) == ("power.power-limit-of-gpu", "power limit of GPU 0")
    assert (steps[0].actual, steps[0].desired, steps[0].pending) == ("700 W", "600 W", False)
    assert [step.pending for step in steps if step.disruption is Disruption.reboot] == [True]
    image = replace(GOOD, operating_system=replace(GOOD.operating_system, booted=False))
    assert len([item for item in cautions(settings, image) if "power" in item.reason]) == 1
