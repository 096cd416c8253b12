"""IMEX: how hosts come to a domain, what a node's probe says, what is to be done, and who is told to be missing."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.base.reading import ParseError
from gpunode.components.driver.services import fabric_steps, services
from gpunode.components.driver.state import DriverState
from gpunode.components.imex.decide import Desired, decide, text_of
from gpunode.components.imex.state import Domain, Imex, parse_imex
from gpunode.node.own_files import driver as driver_files
from gpunode.settings import Settings, check_hosts, settings_from
from gpunode.settings.imex import ImexSettings
from tests.support.imex import (
    ALL,
    ASKED,
    CONFIG,
    DOWN,
    DRIVER,
    FIRST,
    GB200,
    LIST,
    LOST,
    NODE,
    NODES,
    UP,
)
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure


def settings(**more: Any) -> Settings:
    return settings_from({**DATA, "imex": {"enabled": True, "domain": "rack1", "nodes": NODES, **more}})


def test_hosts_of_one_domain_have_one_list_by_their_addresses() -> None:
    data: dict[str, Any] = {"driver": {"version": "580.95.05"}, "imex": {"enabled": True, "domain": "rack1"}}
    hosts = {name: {"ssh_hostname": address, **data} for name, address in NODES.items()}
    found = check_hosts({**hosts, "10.0.0.9": {}}, {"ssh_hostname"})
    assert found["gpu-1"].imex.nodes == found["gpu-2"].imex.nodes == NODES
    assert text_of(found["gpu-1"].imex) == text_of(found["gpu-2"].imex) == LIST
    assert found["10.0.0.9"].imex.nodes == {}
    # A host's name that is an address is one, and what the settings say goes first.
    other = {"imex": {"enabled": True, "domain": "b", "address": "fd00::1"}}, {"imex": {"enabled": True, "domain": "b"}}
    both = check_hosts({"gpu-3": other[0], "10.0.0.4": other[1]}, ())
    assert both["gpu-3"].imex.nodes == {"10.0.0.4": "10.0.0.4", "gpu-3": "fd00::1"}


@given(st.dictionaries(st.from_regex(r"\Agpu-[0-9]{1,3}\Z"), st.ip_addresses(), min_size=2, max_size=20))
def test_every_node_writes_the_same_list_in_whatever_order_the_inventory_names_them(found: dict[str, Any]) -> None:
    addresses = {name: str(address) for name, address in found.items()}
    if len(set(addresses.values())) < len(addresses):
        return
    data = {name: {"imex": {"enabled": True, "domain": "a", "address": at}} for name, at in addresses.items()}
    texts = {text_of(each.imex) for each in check_hosts(data, ()).values()}
    assert texts == {text_of(each.imex) for each in check_hosts(dict(reversed(data.items())), ()).values()}
    (text,) = texts
    assert sorted(text.split()) == sorted(addresses.values())


def test_channel_0_is_a_parameter_of_the_driver_s_that_nothing_may_contradict() -> None:
    desired = settings(channel0=True)
    assert desired.module_parameters == {"NVreg_CreateImexChannel0": "1"}
    assert settings().module_parameters == {}
    text = driver_files.files(desired, NODE)[driver_files.PARAMETERS]
    assert text is not None and "options nvidia NVreg_CreateImexChannel0=1" in text


@given(st.lists(st.text(), max_size=8))
def test_any_answer_is_read_or_refused_in_words(found: list[str]) -> None:
    encoded = base64.b64encode("\n".join(found).encode()).decode()
    for each in (found, [f"answer={encoded}"], [f"unit={line}" for line in found]):
        try:
            assert isinstance(parse_imex(each), Imex)
        except ParseError as error:
            assert str(error)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)


@given(nodes=_JSON, status=_JSON)
def test_json_of_any_shape_is_a_domain_or_words(nodes: Any, status: Any) -> None:
    answer = json.dumps({"nodes": nodes, "status": status})
    found = parse_imex([f"answer={base64.b64encode(answer.encode()).decode()}"])
    assert (found.domain is None) != (found.answer is None)
    decide(Desired(ASKED), replace(found, nodes=LIST), DRIVER)


ACTUAL = st.builds(
    Imex,
    unit=st.sampled_from([UP, UP, DOWN, replace(UP, stale=True), replace(DOWN, enabled=False), None,
                          replace(DOWN, masked=True, enabled=False)]),
    nodes=st.sampled_from([LIST, LIST, f"{FIRST}\n", "", None]),
    record=st.sampled_from([LIST, f"{FIRST}\n", None]),
    config=st.sampled_from([CONFIG, (), (("IMEX_NODE_CONFIG_FILE", "/srv/nodes"),)]),
    domain=st.sampled_from([Domain("UP", ALL), LOST, None]),
    channel0=st.booleans(),
)  # fmt: skip
ASKS = st.sampled_from([ASKED, ASKED, ASKED.model_copy(update={"channel0": True}), ImexSettings()])


@given(asked=ASKS, actual=ACTUAL, allowed=st.sampled_from(list(Disruption)), comes=st.booleans())
def test_every_difference_is_a_steps_or_a_persons_and_the_steps_leave_none(
    asked: ImexSettings, actual: Imex, allowed: Disruption, comes: bool
) -> None:
    desired = Desired(asked, allowed, comes)
    decision = decide(desired, actual, DRIVER)
    settled = {item for step in decision.steps for item in step.settles}
    assert {item for item in bad(*decision.findings) if item not in settled} <= {
        item for item in decision.findings if item.by_person
    } | {item for item in decision.findings if item.what.startswith("file ") and actual.unit is None}
    running = actual.unit is not None and actual.unit.active
    for step in decision.steps:
        assert step.waits is None or (running and allowed < Disruption.restart)
        # A daemon that runs is never given another list.
        if step.change is not None and step.change.text is not None and running:
            assert step.change.stop
    changes = [step.change for step in decision.steps if step.change is not None and step.waits is None]
    if not changes:
        return
    (change, *others) = changes
    assert all(other == change for other in others)
    if change.removes:
        unit = None if actual.unit is None else replace(DOWN, enabled=False)
        after = replace(actual, nodes=None, record=None, unit=unit)
    else:
        text = actual.nodes if change.text is None else change.text
        after = replace(actual, nodes=text, record=text, unit=UP if change.start else actual.unit)
    assert decide(desired, after, DRIVER).steps == ()


@pytest.mark.parametrize(
    ("packages", "versions", "good"),
    [
        ((("nvidia-imex", "580.95.05-1"),), ("nvidia-imex",), True),
        ((("nvidia-imex", "580.82.07-1"),), ("nvidia-imex",), False),
        ((("nvidia-imex-580", "580.95.05-0ubuntu1"),), (), True),
        ((), ("nvidia-imex",), False),
        ((), (), None),
    ],
)
def test_imex_has_to_be_of_the_driver_s_version_as_fabric_manager_has(
    packages: tuple[tuple[str, str], ...], versions: tuple[str, ...], good: bool | None
) -> None:
    driver: DriverState = replace(DRIVER, packages=packages)
    found = [item for item in services(settings().driver, driver, GB200, versions) if item.what == "nvidia-imex"]
    assert [not bad(item) for item in found] == ([] if good is None else [good])
    actions = [step.action for step in fabric_steps(found, with_packages=False)]
    assert [action.split()[:2] for action in actions] == ([] if good in (True, None) else [["install", "nvidia-imex"]])
    # Of GPUs whose NVLink ends in the machine nobody asks for it.
    assert not [item for item in services(settings().driver, driver, GOOD.pci, versions) if item.what == "nvidia-imex"]
