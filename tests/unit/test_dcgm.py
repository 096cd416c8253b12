"""DCGM on the host: what its probe and dcgmi say, what is to be done about it, and what of it cannot be asked for."""

from __future__ import annotations

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
from gpunode.base.reading import ParseError
from gpunode.components.dcgm.decide import Change, Desired, decide, gone
from gpunode.components.dcgm.state import (
    ENGINE,
    ENGINE_FILE,
    EXPORTER,
    EXPORTER_FILE,
    PATHS,
    PODS,
    Dcgm,
    DcgmHealth,
    DcgmUnit,
    Incident,
    files,
    parse_dcgm,
    parse_health,
    variables,
)
from gpunode.facts.base import UNITS
from gpunode.facts.gpu import Dcgm as DcgmFact
from gpunode.lab.packages.dcgm_programs import dcgmi
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.packages.trust import uses_repository
from gpunode.settings import settings_from
from gpunode.system.service import ServiceState
from tests.support.dcgm import EXPORTER_PACKAGE, HEALTHY, VERSION, desired, right, settings
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure

CORE = "datacenter-gpu-manager-4-core"
HEALTHY_ANSWER = '{"body": {"Overall Health": {"value": "Healthy"}}}'
MESSAGE = "Detected more than 8 PCIe replays per minute for GPU 0"


def different(decision: Decision[Any]) -> dict[str, Finding]:
    return {item.what: item for item in bad(*marked(decision).findings)}


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
    assert "datacenter-gpu-manager-4-cuda12" in desired(12).packages
    assert list(desired(12, diagnostics=False, profiling=False).packages) == [CORE]
    assert set(desired(12, version="4.5").packages.values()) == {"4.5"}


def test_its_packages_come_from_nvidia_s_repository_whatever_the_driver_comes_from() -> None:
    data = {"driver": {"source": "present"}, "cuda": {"enabled": False}}
    assert uses_repository(settings_from({**data, "dcgm": {"enabled": True}}), "cuda")
    assert not uses_repository(settings_from(data), "cuda")


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
    (programs / "dcgmi").write_text(f"#!/bin/sh\n{asks}\ncat <<'E'\n{HEALTHY_ANSWER}\nE\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    text = str(DcgmFact().command())
    for path, to in ((ENGINE_FILE, engine), (EXPORTER_FILE, exporter), (PODS, pods)):
        text = text.replace(path, str(to))

    def read() -> Dcgm:
        environment = {"PATH": f"{programs}:/usr/bin:/bin"}
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True, env=environment)
        reading: Dcgm = DcgmFact().process(done.stdout.splitlines())
        return reading

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
