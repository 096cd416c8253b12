"""DCGM on the host: what its probe and dcgmi say, what is to be done about it, and what of it cannot be asked for."""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import Decision, bad, marked
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe_output import pairs
from gpunode.base.reading import ParseError
from gpunode.components.dcgm.decide import Change, Desired, cuda_of, decide, gone
from gpunode.components.dcgm.drop_ins import ENGINE, ENGINE_FILE, EXPORTER, EXPORTER_FILE, PATHS, files, variables
from gpunode.components.dcgm.health import DcgmHealth, Incident, parse_health
from gpunode.components.dcgm.state import PODS, Dcgm, DcgmUnit, parse_dcgm
from gpunode.facts.dcgm import Dcgm as DcgmFact
from gpunode.facts.shared import UNITS
from gpunode.lab.packages.dcgm_programs import dcgmi
from gpunode.node.components import desired_files
from gpunode.node.plan import plan
from gpunode.node.preflight import cautions, refusals
from gpunode.node.verdict import judge
from gpunode.operations import dcgm
from gpunode.packages.trust import uses_repository
from gpunode.settings import SettingsError, settings_from
from gpunode.system.service import ServiceState
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure

ADDRESS = "address of the exporter"

ASKED: dict[str, Any] = {"enabled": True, "exporter": {"enabled": True, "address": "10.0.0.7"}}
CORE, EXPORTER_PACKAGE = "datacenter-gpu-manager-4-core", "datacenter-gpu-manager-exporter"
VERSION, HEALTHY = "1:4.5.3-1", DcgmHealth("Healthy")
UP = DcgmUnit(active=True, enabled=True, service=ServiceState("running"))
MESSAGE = "Detected more than 8 PCIe replays per minute for GPU 0"


def settings(**own: Any) -> Any:
    return settings_from({**DATA, "dcgm": {**ASKED, **own}})


def desired(cuda: int = 13, **own: Any) -> Desired:
    return Desired(settings(**own).dcgm, cuda)


def right(of: Desired) -> Dcgm:
    """Return a node as it is desired."""
    exporter = of.settings.exporter
    told = tuple(sorted(variables(exporter).items())) if exporter.enabled else ()
    own = [(name, VERSION) for name in of.packages]
    own += [(EXPORTER_PACKAGE, "4.8.2-1")] if exporter.enabled else []
    return Dcgm(
        packages=tuple(sorted(own)),
        engine=UP,
        exporter=UP if exporter.enabled else None,
        variables=told,
        told=told,
        configured=told,
        files=PATHS if exporter.enabled else (ENGINE_FILE,),
        health=HEALTHY if of.settings.health else None,
    )


def different(decision: Decision[Any]) -> dict[str, Finding]:
    return {item.what: item for item in bad(*marked(decision).findings)}


def answer(value: str, *incidents: tuple[str, str, str, str, str]) -> str:
    """Return what dcgmi prints: (kind, number, system, value, message)."""
    body: dict[str, Any] = {"Overall Health": {"value": value}}
    for kind, number, system, said, message in incidents:
        entity = body.setdefault(kind, {"children": {}})["children"].setdefault(number, {"value": said})
        errors = entity.setdefault("children", {}).setdefault("Errors", {"children": {}})["children"]
        errors[system] = {"value": said, "overflow": [message[:54], message[54:]] if message[54:] else [message]}
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=3)


def test_the_answer_of_dcgmi_is_read_whole() -> None:
    assert parse_health(answer("Healthy"), "0") == HEALTHY
    found = parse_health(
        answer(
            "Failure",
            ("GPU", "0", "PCIe system", "Warning", MESSAGE),
            ("GPU", "1", "Memory system", "Failure", "x"),
            ("Switch", "3", "Driver", "Failure", "y"),
        ),
        "0",
    )
    assert found.overall == "Failure" and [each.entity for each in found.incidents] == ["GPU 0", "GPU 1", "Switch 3"]
    assert found.incidents[0].system == "PCIe system" and found.incidents[0].value == "Warning"
    assert found.incidents[0].message.replace(" ", "") == MESSAGE.replace(" ", "")


@pytest.mark.parametrize(
    ("printed", "code", "found"),
    [
        ("Error: Health watches not enabled. Please enable watches. \n", "1", DcgmHealth(watched=False)),
        ("Error: unable to establish a connection to the specified host: localhost\n", "1",
         DcgmHealth(error="Error: unable to establish a connection to the specified host: localhost")),
        ("", "124", DcgmHealth(error="exit code 124, and no answer")),
        (answer("Healthy"), "1", DcgmHealth(error=" ".join(answer("Healthy").split()))),
        ('{"body": 3}', "0", DcgmHealth(error='{"body": 3}')),
    ],
)  # fmt: skip
def test_what_is_no_answer_is_told_in_its_own_words(printed: str, code: str, found: DcgmHealth) -> None:
    assert parse_health(printed, code) == found


@given(text=st.text(), code=st.sampled_from(["0", "1"]))
def test_whatever_dcgmi_prints_is_an_answer_or_an_error(text: str, code: str) -> None:
    found = parse_health(text, code)
    assert (found.overall is None) == (found.error is not None or not found.watched)


JSON = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["children", "value", "overflow", "Errors", "GPU"]), inner, max_size=3)
    ),
)


@given(body=st.dictionaries(st.sampled_from(["GPU", "Switch", "Overall Health"]), JSON))
def test_json_of_any_shape_is_an_answer_or_an_error(body: dict[str, Any]) -> None:
    found = parse_health(json.dumps({"body": body}), "0")
    assert all(isinstance(each, Incident) and each.value for each in found.incidents)


def test_the_probe_is_read_whole() -> None:
    encoded = base64.b64encode(answer("Healthy").encode()).decode()
    found = parse_dcgm([
        f"package={CORE} {VERSION}", "pod=gpu-operator/nvidia-dcgm-exporter-abcde", f"file={ENGINE_FILE}",
        "told=DCGM_EXPORTER_LISTEN=[::1]:9400", f"unit={ENGINE}", "SubState=running", "Result=success", "restarts=0",
        "up=100", "ActiveState=active", "UnitFileState=enabled", "NeedDaemonReload=no", f"unit={EXPORTER}",
        "SubState=failed", "Result=exit-code", "ActiveState=failed", "UnitFileState=masked", "NeedDaemonReload=yes",
        "flag=-a", "configured=DCGM_EXPORTER_LISTEN=:1", "variable=DCGM_EXPORTER_LISTEN=:2", "health.rc=0",
        f"health={encoded}",
    ])  # fmt: skip
    assert found.version == VERSION and found.pods == ("gpu-operator/nvidia-dcgm-exporter-abcde",)
    assert found.engine == DcgmUnit(True, True, False, False, ServiceState("running", 0, 1.0))
    assert found.exporter == DcgmUnit(False, False, True, True, ServiceState("failed", result="exit-code"))
    assert found.told == (("DCGM_EXPORTER_LISTEN", "[::1]:9400"),) and found.flags == ("-a",)
    assert dict(found.configured) == {"DCGM_EXPORTER_LISTEN": ":1"}
    assert dict(found.variables) == {"DCGM_EXPORTER_LISTEN": ":2"} and found.health == HEALTHY
    assert parse_dcgm([]) == Dcgm()


@given(
    lines=st.lists(
        st.sampled_from(["unit=", f"unit={ENGINE}", "up=x", "package=", "health=%", "health.rc=0"]) | st.text()
    )
)
def test_any_answer_is_read_or_refused_in_words(lines: list[str]) -> None:
    try:
        parse_dcgm(lines)
    except ParseError as error:
        assert str(error)


UNIT = st.builds(
    DcgmUnit,
    active=st.booleans(),
    enabled=st.booleans(),
    masked=st.just(False),
    outdated=st.booleans(),
    service=st.sampled_from([ServiceState("running"), ServiceState("failed", result="exit-code")]),
)
ACTUAL = st.builds(
    Dcgm,
    packages=st.lists(
        st.sampled_from([
            (CORE, VERSION), (CORE, "1:4.5.2-1"), ("datacenter-gpu-manager-4-cuda13", VERSION),
            ("datacenter-gpu-manager-4-proprietary", VERSION), (EXPORTER_PACKAGE, "4.8.2-1"),
            ("datacenter-gpu-manager", "1:3.3.9"),
        ]), unique_by=lambda each: each[0],
    ).map(tuple),
    engine=st.none() | UNIT,
    exporter=st.none() | UNIT,
    variables=st.sampled_from([(), (("DCGM_EXPORTER_LISTEN", ":9400"),)]),
    flags=st.sampled_from([(), (), ("-a",)]),
    files=st.sampled_from([(), (ENGINE_FILE,), PATHS]),
    pods=st.sampled_from([(), ("gpu-operator/nvidia-dcgm-exporter-x",)]),
    health=st.sampled_from([None, HEALTHY, DcgmHealth(watched=False), DcgmHealth(error="no"),
                            DcgmHealth("Warning", (Incident("GPU 0", "PCIe system", "Warning", MESSAGE),))]),
)  # fmt: skip


@given(
    actual=ACTUAL,
    own=st.fixed_dictionaries({
        "enabled": st.just(True),
        "health": st.booleans(),
        "migrate": st.booleans(),
        "version": st.sampled_from([None, "4.5", "4.5.3"]),
        "exporter": st.fixed_dictionaries({
            "enabled": st.booleans(), "engine": st.sampled_from(["host", "embedded"]), "port": st.integers(1, 65535),
        }),
    }) | st.just({"enabled": False, "exporter": {}}),
)  # fmt: skip
def test_every_difference_is_a_step_s_or_a_person_s_and_the_steps_remove_the_rest(
    actual: Dcgm, own: dict[str, Any]
) -> None:
    to_be = desired(**own)
    decision = marked(decide(to_be, actual))
    settled = {item.what for step in decision.steps for item in step.settles}
    assert settled <= set(different(decision))
    assert all(item.by_person or item.finding_class is FindingClass.ERROR
               for what, item in different(decision).items() if what not in settled)  # fmt: skip
    if decision.refusal is not None:
        assert decision.steps == ()
        return
    after = _carried_out(to_be, actual, decision)
    again = decide(to_be, after)
    # Once more where a service came up, by which more is known.
    again = decide(to_be, _carried_out(to_be, after, again))
    assert again.steps == (), again.steps
    left = different(again)
    assert all(item.by_person or item.finding_class is FindingClass.ERROR for item in left.values()), left


def _with(actual: Dcgm, field: str, unit: DcgmUnit) -> Dcgm:
    return replace(actual, engine=unit) if field == "engine" else replace(actual, exporter=unit)


def _carried_out(to_be: Desired, actual: Dcgm, decision: Decision[Any]) -> Dcgm:
    """Return what becomes of a node: gpunode's files are written before, as in a run."""
    exporter, told = EXPORTER in to_be.units, tuple(sorted(variables(to_be.settings.exporter).items()))
    removed = {{ENGINE: ENGINE_FILE, EXPORTER: EXPORTER_FILE}[unit] for unit in gone(to_be, actual)}
    written = {ENGINE_FILE: bool(to_be.units), EXPORTER_FILE: exporter}
    own = {*(set(actual.files) - removed), *(path for path, is_kept in written.items() if is_kept)}
    after = replace(actual, files=tuple(sorted(own)))
    if exporter:
        after = replace(after, told=told, configured=told)
    for step in decision.steps:
        change = step.change
        if step.action == "install DCGM":
            names = [*to_be.packages, *([EXPORTER_PACKAGE] if exporter else [])]
            others = [each for each in after.packages if each[0] not in (*names, "datacenter-gpu-manager")]
            after = replace(after, packages=tuple(sorted([*others, *((name, VERSION) for name in names)])))
        elif isinstance(change, Change) and change.what == "watch":
            after = replace(after, health=HEALTHY)
        elif isinstance(change, Change):
            field = "engine" if change.unit == ENGINE else "exporter"
            unit = getattr(after, field) or DcgmUnit()
            if change.what == "remove":
                after = _with(after, field, replace(unit, active=False, enabled=False))
            elif change.what == "read":
                after = _with(after, field, replace(unit, outdated=False))
            else:
                after = replace(after, variables=told)
        else:
            (item,) = step.settles
            field = "engine" if ENGINE in item.what else "exporter"
            unit = getattr(after, field) or DcgmUnit()
            up = replace(unit, active=True, service=ServiceState("running"))
            after = _with(after, field, up if step.action == "start it" else replace(unit, enabled=True))
            if field == "exporter" and step.action == "start it":
                after = replace(after, variables=told)
    return after


def test_a_node_as_it_is_desired_has_no_difference_and_no_step() -> None:
    every: tuple[dict[str, Any], ...] = (
        {},
        {"exporter": {}},
        {"health": False},
        {"exporter": {"enabled": True, "engine": "embedded"}},
    )
    for own in every:
        to_be = desired(**own)
        decision = decide(to_be, right(to_be))
        assert (different(decision), decision.steps) == ({}, ())
        node = replace(GOOD, dcgm=right(to_be))
        assert [item for item in bad(*judge(settings(**own), node)) if item.component == "dcgm"] == []


def test_drift_and_plan_tell_of_a_bare_node_what_comes() -> None:
    steps = [step for step in plan(settings(), GOOD).steps if step.component == "dcgm"]
    assert [step.code for step in steps] == [
        "dcgm.version", *("dcgm.service", "dcgm.starts-at-boot") * 2,
    ]  # fmt: skip
    assert steps[0].packages == (
        CORE, "datacenter-gpu-manager-4-cuda13", "datacenter-gpu-manager-4-proprietary", EXPORTER_PACKAGE,
    )  # fmt: skip
    assert [step for step in plan(settings_from(DATA), GOOD).steps if step.component == "dcgm"] == []


def test_the_build_of_the_diagnostics_is_that_of_the_driver_s_cuda() -> None:
    assert [cuda_of(driver) for driver in ("580.95.05", "580", "575.57.08", "535", None)] == [13, 13, 12, 12, 12]
    assert "datacenter-gpu-manager-4-cuda12" in desired(12).packages
    assert list(desired(12, diagnostics=False, profiling=False).packages) == [CORE]
    assert set(desired(12, version="4.5").packages.values()) == {"4.5"}


def test_packages_of_another_version_than_the_core_s_are_installed_anew() -> None:
    to_be, there = desired(), right(desired())
    torn = replace(
        there, packages=tuple((name, "1:4.5.2-1" if "cuda" in name else own) for name, own in there.packages)
    )
    assert different(decide(to_be, torn))["packages"].actual == "without datacenter-gpu-manager-4-cuda13"
    old = replace(there, packages=tuple((name, "1:4.4.2-1") for name, _ in there.packages))
    assert set(different(decide(desired(version="4.5"), old))) == {"version"}
    assert different(decide(to_be, old)) == {}


def test_the_exporter_is_restarted_where_it_runs_by_another_address() -> None:
    to_be, there = desired(), right(desired())
    other = dict(there.variables) | {"DCGM_EXPORTER_LISTEN": "0.0.0.0:9400"}
    decision = decide(to_be, replace(there, variables=tuple(other.items())))
    assert different(decision)[ADDRESS].actual == "0.0.0.0:9400"
    assert [step.change for step in decision.steps] == [Change("restart", EXPORTER)]
    # Without any variable it listens at all addresses.
    assert different(decide(to_be, replace(there, variables=())))[ADDRESS].actual == ":9400"
    other = {key: value for key, value in there.variables if key != "DCGM_REMOTE_HOSTENGINE_INFO"}
    left = different(decide(to_be, replace(there, variables=tuple(other.items()))))
    assert left["running configuration"].desired == "DCGM_REMOTE_HOSTENGINE_INFO=127.0.0.1:5555"


def test_what_counts_more_than_the_drop_in_is_a_person_s() -> None:
    to_be, there = desired(), right(desired())
    flags = different(decide(to_be, replace(there, flags=("--address",))))
    assert flags[ADDRESS].by_person and "--address" in str(flags[ADDRESS].cause)
    moved = tuple((dict(there.configured) | {"DCGM_EXPORTER_LISTEN": ":1"}).items())
    decision = decide(to_be, replace(there, configured=moved, variables=moved))
    assert decision.steps == () and "another drop-in" in str(different(decision)[ADDRESS].cause)
    # Not where gpunode's own file is an older one, or systemd has not read it yet.
    old = decide(to_be, replace(there, configured=moved, variables=moved, told=moved))
    assert [step.change for step in old.steps] == [Change("restart", EXPORTER)]
    unread = replace(there, configured=moved, variables=moved, exporter=replace(UP, outdated=True))
    assert Change("restart", EXPORTER) in [step.change for step in decide(to_be, unread).steps]


@pytest.mark.parametrize(
    ("value", "kind"), [("Warning", FindingClass.DRIFT), ("Failure", FindingClass.ERROR), ("?", FindingClass.ERROR)]
)
def test_what_dcgm_says_of_a_gpu_is_a_person_s_with_its_words(value: str, kind: FindingClass) -> None:
    sick = replace(right(desired()), health=DcgmHealth(value, (Incident("GPU 0", "PCIe system", value, MESSAGE),)))
    (item,) = different(decide(desired(), sick)).values()
    assert (item.what, item.actual, item.finding_class) == ("health by DCGM of GPU 0: PCIe system", value, kind)
    assert item.by_person and item.cause == MESSAGE and "dcgmi diag" in str(item.remedy)
    overall = different(decide(desired(), replace(sick, health=DcgmHealth(value))))
    assert overall["health by DCGM"].finding_class is kind
    assert different(decide(desired(health=False), sick)) == {}


def test_without_watches_the_health_is_watched_and_without_an_answer_a_person_looks() -> None:
    there = right(desired())
    for health in (None, DcgmHealth(watched=False)):
        decision = decide(desired(), replace(there, health=health))
        assert [step.change for step in decision.steps] == [Change("watch")]
    (item,) = different(decide(desired(), replace(there, health=DcgmHealth(error="Error: no")))).values()
    assert (item.actual, item.finding_class) == ("Error: no", FindingClass.ERROR)


def test_an_exporter_that_ended_is_told_with_where_its_words_are() -> None:
    ended = replace(UP, active=False, service=ServiceState("failed", result="exit-code"))
    item = different(decide(desired(), replace(right(desired()), exporter=ended)))[f"service {EXPORTER}"]
    assert item.actual == "failed" and "/var/log/dcgm-exporter.log" in str(item.cause)


def test_what_gpunode_ran_goes_with_the_setting_and_what_others_run_stays() -> None:
    there, off = right(desired()), desired(enabled=False, exporter={})
    decision = decide(off, there)
    assert [step.change for step in decision.steps] == [Change("remove", EXPORTER), Change("remove", ENGINE)]
    assert decide(off, replace(there, files=())).steps == ()
    assert decide(off, Dcgm()).findings == ()
    alone = decide(desired(exporter={}), there)
    assert [step.change for step in alone.steps] == [Change("remove", EXPORTER)]


def test_the_drop_ins_say_where_it_listens_and_what_is_watched() -> None:
    found = desired_files(settings(), GOOD.machine)
    said = [line for line in str(found[EXPORTER_FILE]).splitlines() if line and not line.startswith("#")]
    assert said == [
        "[Unit]",
        "PartOf=nvidia-dcgm.service",
        "[Service]",
        "Restart=always",
        "RestartSec=5",
        'Environment="DCGM_EXPORTER_LISTEN=10.0.0.7:9400"',
        'Environment="DCGM_EXPORTER_INTERVAL=30000"',
        'Environment="DCGM_REMOTE_HOSTENGINE_INFO=127.0.0.1:5555"',
        'Environment="DCGM_EXPORTER_NO_HOSTNAME=true"',
    ]
    assert "ExecStartPost=-/bin/sh -c '" in str(found[ENGINE_FILE]) and "dcgmi health -s a" in str(found[ENGINE_FILE])
    assert "dcgmi" not in str(files(settings(health=False), None)[ENGINE_FILE])
    # With an engine of its own it does not depend on the host's.
    alone = files(settings(exporter={"enabled": True, "engine": "embedded"}), None)[EXPORTER_FILE]
    assert "PartOf" not in str(alone) and "Restart=always" in str(alone)
    assert files(settings(exporter={}), None)[EXPORTER_FILE] is None
    assert set(files(settings_from(DATA), None).values()) == {None}
    six = settings(exporter={"enabled": True, "address": "FD00::0:7", "engine": "embedded", "interval": 1})
    assert variables(six.dcgm.exporter) == {"DCGM_EXPORTER_LISTEN": "[fd00::7]:9400", "DCGM_EXPORTER_INTERVAL": "1000"}


@pytest.mark.parametrize(
    ("data", "key", "message"),
    [
        ({"dcgm": {"exporter": {"enabled": True}}}, "dcgm.exporter.enabled", "set dcgm.enabled = True with it"),
        ({"dcgm": {"exporter": {"address": "gpu-1"}}}, "dcgm.exporter.address", "must be an IP address of the node's"),
        ({"dcgm": {"exporter": {"address": "10.0.0.7\n[Unit]"}}}, "dcgm.exporter.address", "must be an IP address"),
        ({"dcgm": {"exporter": {"address": "fe80::1%eth0"}}}, "dcgm.exporter.address", "must be an IP address"),
        ({"dcgm": {"exporter": {"port": 0}}}, "dcgm.exporter.port", "1"),
        ({"dcgm": {"exporter": {"port": True}}}, "dcgm.exporter.port", "whole number"),
        ({"dcgm": {"version": "3.3.9"}}, "dcgm.version", "must be a version of DCGM 4"),
        ({"dcgm": {"enabled": True}, "driver": {"source": "absent"}, "cuda": {"enabled": False},
          "toolkit": {"enabled": False}, "containerd": {"enabled": False}}, "dcgm.enabled", "needs the driver"),
        ({"dcgm": {"enabled": True}, "kubernetes": {"enabled": True}, "device_plugin": {"method": "gpu-operator"}},
         "dcgm.enabled", "gpu_operator.dcgm_exporter = True has it in the cluster"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_is_refused_by_its_key(data: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_from(data)
    told = [str(problem) for problem in refused.value.problems]
    assert any(key in text and message in text for text in told), told


def test_the_operator_without_its_exporter_may_stand_beside_dcgm_on_the_host() -> None:
    cluster = {"kubernetes": {"enabled": True}, "device_plugin": {"method": "gpu-operator", "nfd": "present"}}
    assert settings_from({"dcgm": ASKED, **cluster, "gpu_operator": {"dcgm_exporter": False}}).dcgm.enabled


def test_preflight_refuses_a_second_dcgm_dcgm_3_and_a_distribution_without_packages() -> None:
    def reasons(machine: Any, **own: Any) -> list[str]:
        return [str(item) for item in refusals(settings(**own), machine) if item.component == "dcgm"]

    assert reasons(GOOD) == []
    pods = replace(GOOD, dcgm=Dcgm(pods=("monitoring/dcgm-exporter-x",)))
    (told,) = reasons(pods)
    assert "monitoring/dcgm-exporter-x" in told and "dcgm.enabled = False" in told
    assert reasons(pods, enabled=False, exporter={}) == []
    former = replace(GOOD, dcgm=Dcgm((("datacenter-gpu-manager", "1:3.3.9"),)))
    (told,) = reasons(former)
    assert "datacenter-gpu-manager 1:3.3.9 is installed" in told and "dcgm.migrate = True" in told
    assert reasons(former, migrate=True) == []
    arch = replace(GOOD, operating_system=replace(GOOD.operating_system, id="arch", version_id=""))
    assert any("no packages of DCGM" in told for told in reasons(arch))


def test_an_exporter_of_another_release_is_told() -> None:
    def told(version: str) -> list[str]:
        own = settings(version="4.5.3", exporter={"enabled": True, "version": version})
        return [str(item) for item in cautions(own, GOOD) if item.component == "dcgm"]

    assert told("4.8.2") == [] and "set dcgm.exporter.version = '4.8.2'" in told("4.8.0")[0]


def test_its_packages_come_from_nvidia_s_repository_whatever_the_driver_comes_from() -> None:
    data = {"driver": {"source": "present"}, "cuda": {"enabled": False}}
    assert uses_repository(settings_from({**data, "dcgm": {"enabled": True}}), "cuda")
    assert not uses_repository(settings_from(data), "cuda")


def test_the_operation_does_what_the_decision_says(host: Host) -> None:
    to_be = desired()
    host.readings[DcgmFact] = right(to_be)
    assert commands(dcgm.services, host, desired=to_be) == []
    assert host.noops == [f"{ENGINE} and {EXPORTER} run as desired"]
    host.readings[DcgmFact] = replace(right(to_be), variables=(), health=DcgmHealth(watched=False))
    (command,) = commands(dcgm.services, host, desired=to_be)
    assert f"restart={EXPORTER}" in command and "watch=yes" in command and "stopped= removed= " in command
    (command,) = commands(dcgm.services, host, desired=desired(enabled=False, exporter={}))
    assert f"'stopped={EXPORTER} {ENGINE}'" in command and EXPORTER_FILE in command and ENGINE_FILE in command
    # A drop-in that is left goes, too, where its unit is stopped already.
    host.readings[DcgmFact] = Dcgm(files=(EXPORTER_FILE,))
    (command,) = commands(dcgm.services, host, desired=desired(enabled=False, exporter={}))
    assert f"stopped= removed={EXPORTER_FILE}" in command
    host.readings[DcgmFact] = Dcgm((("datacenter-gpu-manager", "1:3.3.9"),))
    assert commands(dcgm.services, host, desired=to_be) == [] and "DCGM 3" in host.refusals[0]
    host.readings[DcgmFact] = Dcgm()
    assert commands(dcgm.services, host, desired=desired(enabled=False, exporter={})) == []
    assert len(host.noops) == 2 and "DCGM" in host.noops[-1]


@pytest.mark.real
def test_the_probe_reads_pods_files_and_asks_dcgmi_where_its_health_is_watched(tmp_path: Path) -> None:
    programs, etc, pods = (tmp_path / name for name in ("bin", "etc", "pods"))
    for folder in (programs, etc, pods):
        folder.mkdir()
    for pod in ("gpu-operator_nvidia-dcgm-exporter-x7k2p_1-2", "gpu-operator_nvidia-dcgm-4bxzw_3", "web_app-1_4"):
        (pods / pod).mkdir()
    engine, exporter = etc / "engine.conf", etc / "exporter.conf"
    node = replace(GOOD, dcgm=Dcgm())
    texts = files(settings(), node)
    (programs / "systemctl").write_text(
        "#!/bin/sh\necho 'Names=nvidia-dcgm.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
        "UnitFileState=enabled\nNeedDaemonReload=no'\n"
    )
    asks = f"echo asked >> {tmp_path}/asked; [ \"$*\" = 'health -c -j' ] || exit 9"
    (programs / "dcgmi").write_text(f"#!/bin/sh\n{asks}\ncat <<'E'\n{answer('Healthy')}\nE\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    text = str(DcgmFact().command())
    for path, to in ((ENGINE_FILE, engine), (EXPORTER_FILE, exporter), (PODS, pods)):
        text = text.replace(path, str(to))

    def read() -> Dcgm:
        environment = {"PATH": f"{programs}:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True, env=environment)
        return DcgmFact().process(done.stdout.splitlines())

    found = read()
    assert found.pods == ("gpu-operator/nvidia-dcgm-4bxzw", "gpu-operator/nvidia-dcgm-exporter-x7k2p")
    assert found.engine is not None and found.engine.active and found.exporter is None
    assert (found.files, found.health) == ((), None)
    engine.write_text(str(files(settings(health=False), node)[ENGINE_FILE]))
    assert read().health is None and not (tmp_path / "asked").exists()
    engine.write_text(str(texts[ENGINE_FILE]))
    exporter.write_text(str(texts[EXPORTER_FILE]))
    found = read()
    assert found.health == HEALTHY and dict(found.told) == variables(settings().dcgm.exporter)


@pytest.mark.simulated
def test_the_simulated_dcgmi_reports_in_the_shape_that_is_parsed() -> None:
    rows = [["GPU", "0", "PCIe system", "Warning", MESSAGE], ["GPU", "1", "Memory system", "Failure", "x"]]
    found = parse_health(json.dumps(dcgmi.report(rows)), "0")
    assert found == DcgmHealth("Failure", (
        Incident("GPU 0", "PCIe system", "Warning", MESSAGE), Incident("GPU 1", "Memory system", "Failure", "x"),
    ))  # fmt: skip
    assert parse_health(json.dumps(dcgmi.report([])), "0") == HEALTHY


def test_the_units_are_asked_with_all_others() -> None:
    assert UNITS.of(ENGINE, EXPORTER) in DcgmFact.probe.shared
    assert dict(pairs(["a=b"])) == {"a": "b"}
