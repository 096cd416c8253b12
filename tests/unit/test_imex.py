"""IMEX: how hosts come to a domain, what a node's probe says, what is to be done, and who is told to be missing."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.base.reading import ParseError
from gpunode.components.driver import DriverState
from gpunode.components.driver.services import fabric_steps, services
from gpunode.components.imex.decide import RUNS, Desired, decide, text_of
from gpunode.components.imex.state import RECORD, Domain, DomainNode, Imex, ImexUnit, parse_imex
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.imex import Imex as ImexFact
from gpunode.node.own_files import driver as driver_files
from gpunode.node.plan import plan
from gpunode.node.preflight import refusals
from gpunode.operations import imex
from gpunode.settings import Settings, SettingsError, check_hosts, settings_from
from gpunode.settings.imex import ImexSettings, known
from gpunode.system.pci import PciGpu, PciGpus
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure
FIRST, SECOND = "10.0.0.1", "10.0.0.2"
NODES = {"gpu-1": FIRST, "gpu-2": SECOND}
ASKED = ImexSettings(enabled=True, domain="rack1", nodes=NODES)
LIST = f"{FIRST}\n{SECOND}\n"
UP = ImexUnit(active=True, enabled=True)
DOWN = ImexUnit(active=False, enabled=True)
ALL = tuple(DomainNode(each, "READY", ((FIRST, "CONNECTED"), (SECOND, "CONNECTED"))) for each in (FIRST, SECOND))
CONFIG = (("IMEX_NODE_CONFIG_FILE", "/etc/nvidia-imex/nodes_config.cfg"), ("IMEX_CMD_ENABLED", "1"))
RIGHT = Imex(UP, LIST, LIST, CONFIG, Domain("UP", ALL))
LOST = Domain("DEGRADED", (ALL[0], DomainNode(SECOND, "UNAVAILABLE", ((FIRST, "INVALID"), (SECOND, "INVALID")))))
DRIVER = replace(GOOD.driver, packages=(("nvidia-imex", "580.95.05-1"),))
GB200 = PciGpus((PciGpu("0000:08:00.0", "2941", "HGX GB200", "blackwell"),))
NODE = replace(GOOD, pci=GB200, driver=DRIVER, imex=RIGHT)
# As nvidia-imex-ctl -N -j prints it: in no order, and with keys that nobody reads here.
ANSWER = {
    "nodes": {
        "1": {"status": "UNAVAILABLE", "host": SECOND, "hostName": "N/A", "version": "", "changed": False,
              "connections": {"1": {"host": SECOND, "status": "INVALID", "changed": False},
                              "0": {"host": FIRST, "status": "INVALID", "changed": False}}},
        "0": {"status": "READY", "host": FIRST, "hostName": "gpu-1", "version": "580.95.05", "changed": True,
              "connections": {"0": {"host": FIRST, "status": "CONNECTED", "changed": True},
                              "1": {"host": SECOND, "status": "NEVER_CONNECTED", "changed": False}}},
    },
    "timestamp": "5/22/2026 19:46:40.891",
    "status": "DEGRADED",
}  # fmt: skip


def settings(**more: Any) -> Settings:
    return settings_from({**DATA, "imex": {"enabled": True, "domain": "rack1", "nodes": NODES, **more}})


def hosts(**second: Any) -> dict[str, dict[str, Any]]:
    data = {"driver": {"version": "580.95.05"}, "imex": {"enabled": True, "domain": "rack1"}}
    return {
        "gpu-1": {"ssh_hostname": FIRST, **data},
        "gpu-2": {"ssh_hostname": SECOND, **data, **second},
    }


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def lines(answer: str, started: str = "Wed 2026-11-25 16:00:10.5 UTC", written: str = "1.5") -> list[str]:
    return [
        f"file=/etc/nvidia-imex/nodes_config.cfg {_b64(LIST)}",
        f"file={RECORD} {_b64('')}",
        f"written={written}",
        "channel0=yes",
        f"unit=loaded\tactive\tenabled\t{started}",
        "config=IMEX_NODE_CONFIG_FILE=/etc/nvidia-imex/nodes_config.cfg",
        "config=IMEX_CMD_ENABLED=1",
        f"answer={_b64(answer)}",
    ]


def test_hosts_of_one_domain_have_one_list_by_their_addresses() -> None:
    found = check_hosts({**hosts(), "10.0.0.9": {}}, {"ssh_hostname"})
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


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"gpu-1": hosts()["gpu-1"]}, "gpu-1: imex.domain = 'rack1': has one node, gpu-1, whose GPUs need no IMEX"),
        (hosts(imex={"enabled": True, "domain": "rack2"}), "gpu-2: imex.domain = 'rack2': has one node, gpu-2"),
        (hosts(ssh_hostname="gpu-2.example.org"), "gpu-2: imex.address = None: is missing: neither the host's name"),
        (hosts(ssh_hostname="127.0.0.1"), "gpu-2: imex.address = None: is missing"),
        (hosts(ssh_hostname=FIRST), "imex.address = '10.0.0.1': is the address of gpu-1, gpu-2"),
        (
            hosts(driver={"version": "580.82.07"}),
            "gpu-2: driver.version = '580.82.07': must be the same for all nodes of IMEX domain rack1",
        ),
        (hosts(driver={"branch": "590"}), "gpu-2: driver.version = None: must be the same"),
        (hosts(imex={"enabled": True}), "gpu-2: imex.domain = None: is needed with imex.enabled"),
        (
            hosts(imex={"enabled": True, "nodes": {"gpu-1": FIRST, "gpu-3": SECOND}}),
            "does not name this host, whose own address has to stand in the list",
        ),
        (hosts(imex={"enabled": True, "nodes": {"gpu-2": FIRST}}), "gpu-2: imex.nodes = {'gpu-2': '10.0.0.1'}: is a"),
        (
            hosts(imex={"enabled": True, "nodes": {"gpu-2": FIRST, "gpu-1": FIRST}}),
            "has 10.0.0.1 twice: of gpu-2, gpu-1",
        ),
        (hosts(imex={"enabled": True, "domain": "a", "address": "gpu-2"}), "imex.address = 'gpu-2': must be an IPv4"),
        (
            hosts(driver={"source": "absent", "version": "580.95.05"}),
            "imex.enabled = True: needs the driver, which driver.source = 'absent' removes",
        ),
    ],
)
def test_what_is_no_domain_is_refused_with_host_key_and_reason(data: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as error:
        check_hosts(data, {"ssh_hostname"})
    assert words in str(error.value)


def test_a_host_with_a_mistake_of_its_own_does_not_make_its_domain_one_of_one_node() -> None:
    with pytest.raises(SettingsError) as error:
        check_hosts(hosts(driver={"version": "nonsense"}), {"ssh_hostname"})
    assert "has one node" not in str(error.value) and len(error.value.problems) == 1


def test_channel_0_is_a_parameter_of_the_driver_s_that_nothing_may_contradict() -> None:
    desired = settings(channel0=True)
    assert desired.module_parameters == {"NVreg_CreateImexChannel0": "1"}
    assert settings().module_parameters == {}
    text = driver_files.files(desired, NODE)[driver_files.PARAMETERS]
    assert text is not None and "options nvidia NVreg_CreateImexChannel0=1" in text
    for driver, words in (
        ({"module_parameters": {"NVreg_CreateImexChannel0": "0"}}, "at odds with driver.module_parameters"),
        ({"source": "present"}, "takes a driver of gpunode's"),
    ):
        imex_of = {"enabled": True, "nodes": NODES, "channel0": True}
        with pytest.raises(SettingsError, match=words):
            settings_from({"driver": driver, "imex": imex_of})


def test_the_probe_is_read_whole() -> None:
    found = parse_imex(lines(json.dumps(ANSWER)))
    assert found == Imex(
        unit=UP,
        nodes=LIST,
        record="",
        config=CONFIG,
        domain=Domain(
            "DEGRADED",
            (
                DomainNode(FIRST, "READY", ((FIRST, "CONNECTED"), (SECOND, "NEVER_CONNECTED"))),
                DomainNode(SECOND, "UNAVAILABLE", ((FIRST, "INVALID"), (SECOND, "INVALID"))),
            ),
        ),
        channel0=True,
    )
    assert parse_imex([]) == Imex()
    stale = parse_imex(lines("", written="1795622500.0"))
    assert stale.unit == replace(UP, stale=True)


@pytest.mark.parametrize("answer", ["Failed to read node configuration file", "[]", '{"nodes": []}', '{"status": 1}'])
def test_an_answer_of_another_shape_is_told_in_the_daemon_s_words(answer: str) -> None:
    found = parse_imex(lines(answer))
    assert found.domain is None and found.answer == answer
    item = _domain_of(replace(RIGHT, domain=None, answer=answer))
    assert item.cause == f"nvidia-imex-ctl says: {answer}" and item.by_person


@given(st.lists(st.text(), max_size=8))
def test_any_answer_is_read_or_refused_in_words(found: list[str]) -> None:
    for each in (found, lines("\n".join(found)), [f"unit={line}" for line in found]):
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
    found = parse_imex(lines(json.dumps({"nodes": nodes, "status": status})))
    assert (found.domain is None) != (found.answer is None)
    decide(Desired(ASKED), replace(found, nodes=LIST), DRIVER)


def _domain_of(actual: Imex) -> Any:
    (item,) = (item for item in decide(Desired(ASKED), actual, DRIVER).findings if item.what == "IMEX domain")
    return item


def test_who_is_missing_is_told_by_name_and_address() -> None:
    assert _domain_of(RIGHT).finding_class is FindingClass.OK
    item = _domain_of(replace(RIGHT, domain=LOST))
    assert (item.actual, item.desired, item.by_person) == ("DEGRADED", "UP, 2 nodes", True)
    assert (item.cause or "").startswith("gpu-2 (10.0.0.2) is UNAVAILABLE: see to nvidia-imex there")
    apart = replace(ALL[0], connections=((FIRST, "CONNECTED"), (SECOND, "NODE_MAP_MISMATCH")))
    item = _domain_of(replace(RIGHT, domain=Domain("DEGRADED", (apart, ALL[1]))))
    assert (item.cause or "").startswith("gpu-1 (10.0.0.1) to gpu-2 (10.0.0.2) is NODE_MAP_MISMATCH")
    # A daemon that is content with fewer nodes than were asked for is not.
    item = _domain_of(replace(RIGHT, domain=Domain("UP", (replace(ALL[0], connections=((FIRST, "CONNECTED"),)),))))
    assert unnamed(item.cause, "gpu-2 (10.0.0.2)") == []


def test_of_many_that_are_missing_six_are_named() -> None:
    every = {f"gpu-{number}": f"10.0.0.{number}" for number in range(1, 19)}
    asked = ImexSettings(enabled=True, nodes=every)
    actual = replace(RIGHT, nodes=text_of(asked), domain=LOST)
    (item,) = (item for item in decide(Desired(asked), actual, DRIVER).findings if item.what == "IMEX domain")
    assert (item.cause or "").count(" is not among") == 5 and "and 11 more" in (item.cause or "")


def test_what_config_cfg_says_otherwise_is_its_owner_s_to_mend() -> None:
    other = replace(RIGHT, config=(("IMEX_NODE_CONFIG_FILE", "/srv/nodes"), ("IMEX_CMD_ENABLED", "1")))
    decision = decide(Desired(ASKED), other, DRIVER)
    (item,) = bad(*decision.findings)
    assert item.by_person and "/etc/nvidia-imex/config.cfg has IMEX_NODE_CONFIG_FILE=/srv/nodes" in str(item.cause)
    silent = replace(RIGHT, domain=None, answer="", config=(("IMEX_CMD_ENABLED", "0"),))
    assert "IMEX_CMD_ENABLED=0: set it to 1" in str(_domain_of(silent).cause)
    assert "no IMEX_CMD_ENABLED: set it to 1" in str(_domain_of(replace(silent, config=())).cause)
    assert "IMEX_CMD_ENABLED" not in str(_domain_of(replace(silent, config=(("IMEX_CMD_ENABLED", "1"),))).cause)


def test_a_list_that_somebody_else_wrote_is_refused_and_stays() -> None:
    theirs = replace(RIGHT, nodes="# rack 7\n10.0.0.1\n10.0.0.9\n", record=None)
    decision = decide(Desired(ASKED), theirs, DRIVER)
    assert decision.steps == () and unnamed(str(decision.refusal), known().nodes_file, "imex.domain") == []
    assert all(item.by_person for item in bad(*decision.findings))
    # One without a node is a template.
    assert decide(Desired(ASKED), replace(theirs, nodes="# rack 7\n"), DRIVER).steps != ()


def test_a_running_daemon_is_not_stopped_before_the_boot_that_it_needs_to_start_again() -> None:
    old = replace(RIGHT, nodes=f"{FIRST}\n", record=f"{FIRST}\n")
    booting = replace(DRIVER, module_version="580.105.08", loaded_version="580.95.05")
    assert booting.reboot_pending
    decision = decide(Desired(ASKED, Disruption.reboot), old, booting)
    assert decision.steps and all("boots into" in str(step.waits) for step in decision.steps)
    assert {item.finding_class for item in bad(*decision.findings)} == {FindingClass.RESTART_PENDING}
    # One that is stopped gets its list at once.
    assert all(step.waits is None for step in decide(Desired(ASKED), replace(old, unit=DOWN), booting).steps)


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


def test_a_running_daemon_is_not_stopped_where_nothing_may_be_disturbed() -> None:
    decision = decide(Desired(ASKED, Disruption.nothing), replace(RIGHT, nodes=f"{FIRST}\n"), DRIVER)
    assert {item.finding_class for item in bad(*decision.findings)} == {FindingClass.RESTART_PENDING}
    # One that does not run disturbs nobody.
    stopped = replace(RIGHT, unit=DOWN, nodes=None)
    assert all(step.waits is None for step in decide(Desired(ASKED, Disruption.nothing), stopped, DRIVER).steps)


def test_nothing_is_judged_of_a_domain_that_is_somebody_else_s() -> None:
    assert decide(Desired(ImexSettings()), replace(RIGHT, record=None), DRIVER).findings == ()


def test_while_another_driver_waits_for_the_boot_the_service_and_its_domain_do_so_too() -> None:
    waiting = replace(DRIVER, module_version="580.105.08")
    decision = decide(Desired(ASKED), replace(RIGHT, unit=DOWN, domain=None), waiting)
    assert not bad(*decision.findings) and all(item.what != "IMEX domain" for item in decision.findings)


def test_a_masked_service_is_a_person_s_who_is_told_why_somebody_did_it() -> None:
    decision = decide(Desired(ASKED), replace(RIGHT, unit=replace(DOWN, masked=True)), DRIVER)
    (item,) = decision.findings
    assert item.by_person and "systemctl unmask nvidia-imex" in str(item.cause) and not decision.steps


def test_channel_0_is_looked_for_once_its_module_is_loaded() -> None:
    asked = ASKED.model_copy(update={"channel0": True})
    (item,) = bad(*decide(Desired(asked), RIGHT, DRIVER).findings)
    assert item.what == "IMEX channel 0" and known().channel_device in str(item.cause)
    assert not bad(*decide(Desired(asked), replace(RIGHT, channel0=True), DRIVER).findings)
    # Before the boot that brings the parameter the driver's own finding tells it.
    before = replace(DRIVER, parameters=(("CreateImexChannel0", "0"),))
    assert not bad(*decide(Desired(asked), RIGHT, before).findings)


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


def test_gpus_without_nvlink_between_machines_and_sources_without_imex_are_refused() -> None:
    def of(node: Any, **more: Any) -> list[str]:
        data = {**DATA, "imex": {"enabled": True, "nodes": NODES}, **more}
        return [each.reason for each in refusals(settings_from(data), node) if each.component == "imex"]

    assert of(NODE) == []
    (reason,) = of(replace(NODE, pci=GOOD.pci))
    assert unnamed(reason, "GH100 [H100 SXM5 80GB]", "no other machine") == []
    bare = replace(NODE, driver=GOOD.driver)
    runfile = {"source": "runfile", "version": "580.95.05", "runfile_sha256": "0" * 64}
    (reason,) = of(bare, driver=runfile)
    assert "driver.source = 'runfile' brings no nvidia-imex" in reason
    assert of(NODE, driver=runfile) == []


def test_the_plan_and_the_verdict_go_by_the_same_decision() -> None:
    actual = replace(NODE, imex=replace(RIGHT, unit=DOWN, nodes=f"{FIRST}\n"))
    steps = [step for step in plan(settings(), actual).steps if step.component == "imex"]
    write, run = (step.action for step in steps)
    assert write == f"write {known().nodes_file}, with nvidia-imex stopped" and run.startswith("run nvidia-imex")
    assert steps[1].desired == RUNS


@pytest.mark.parametrize(
    ("actual", "allowed", "asked", "stop", "start"),
    [
        (RIGHT, "restart", ASKED, 0, 0),
        (replace(RIGHT, nodes="10.9.9.9\n"), "restart", ASKED, 3, 1),
        (replace(RIGHT, nodes="10.9.9.9\n"), "nothing", ASKED, 0, 0),
        (replace(RIGHT, unit=DOWN), "nothing", ASKED, 0, 1),
        (replace(RIGHT, unit=replace(UP, stale=True)), "restart", ASKED, 1, 1),
        (Imex(replace(DOWN, enabled=False)), "restart", ASKED, 2, 1),
        (RIGHT, "restart", ImexSettings(), 1, 0),
        (replace(RIGHT, record=None), "restart", ImexSettings(), 0, 0),
    ],
)
def test_the_operations_carry_out_what_was_decided(
    actual: Imex, allowed: str, asked: ImexSettings, stop: int, start: int
) -> None:
    host = Host({ImexFact: actual, DriverFact: DRIVER})
    with ctx_host.use(host):
        first = commands(imex.nodes, host, settings=asked, allowed=allowed, comes=True)
        assert len(first) == stop, first
        # The list is written behind the stop, and gpunode's record before the list.
        if stop > 1:
            assert [known().nodes_file in text and "mv" in text for text in first][-1]
            assert RECORD in first[-2]
        second = commands(imex.running, host, settings=asked, allowed=allowed, comes=True) if asked.enabled else []
        assert len(second) == start, second
    assert host.refusals == []


def test_a_node_to_which_nvidia_imex_did_not_come_fails_with_what_to_do() -> None:
    host = Host({ImexFact: Imex(), DriverFact: DRIVER})
    with ctx_host.use(host):
        assert commands(imex.nodes, host, settings=ASKED, allowed="restart", comes=True) == []
    assert host.refusals and host.refusals[0].startswith("imex: nvidia-imex ")
