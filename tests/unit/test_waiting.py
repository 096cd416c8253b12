"""Since when a node waits for a restart or a boot: kept in the node's record, and told by drift, run and rollout."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import PENDING, Finding, FindingClass, NodeReport, parse_waiting, waiting, with_since
from gpunode.facts.node import Node as NodeFact
from gpunode.facts.records import Applied as AppliedFact
from gpunode.fleet.drift import contained_report
from gpunode.fleet.nodes import Answer
from gpunode.fleet.reports.findings_text import report_text
from gpunode.node.plan import plan
from gpunode.operations import applied, verify
from gpunode.system.applied import Applied, parse_applied, record_text
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure

BEFORE, NOW = "2026-01-15T08:00:00Z", "2026-01-31T12:00:00Z"
# An older module is loaded than is on the disk.
STALE = replace(GOOD, driver=replace(GOOD.driver, loaded_version="580.82.07"))
KEY = "driver: loaded module"
REBOOT = Finding(
    "driver",
    FindingClass.REBOOT_PENDING,
    "loaded module",
    "580.82.07",
    "580.95.05",
    "old",
    "boot",
    code="driver.loaded-module",
)


_FINDINGS = st.builds(
    Finding,
    st.sampled_from(["driver", "docker", "mig"]),
    st.sampled_from(FindingClass),
    st.sampled_from(["loaded module", "configuration files"]) | st.text(max_size=310),
)


@given(st.lists(st.lists(_FINDINGS, max_size=4), max_size=4))
def test_the_record_brings_back_what_it_was_given_and_a_second_run_changes_nothing(runs: list[list[Finding]]) -> None:
    before: dict[str, str] = {}
    for number, findings in enumerate(runs):
        found = waiting(findings, before, f"2026-01-31T12:00:0{number}Z")
        assert all(found[key] == before[key] for key in found if key in before)
        text = record_text("0.1", "digest", {}, found)
        assert parse_waiting(json.loads(text).get("waiting")) == found and ("waiting" in json.loads(text)) is bool(
            found
        )
        record = base64.b64encode(text.encode()).decode()
        assert dict(parse_applied([f"record={record}"]).waiting) == found
        assert record_text("0.1", "digest", {}, waiting(findings, found, "2027-01-01T00:00:00Z")) == text
        before = found
        told = with_since(findings, found)
        assert all((each.since is not None) <= (each.finding_class in PENDING) for each in told)


def _recorded(host: Host, before: Applied) -> dict[str, str]:
    """Return what the record says of it after a run on a node that waits, or not."""
    host.readings[AppliedFact] = before
    list(verify.verified._inner(settings=SETTINGS))
    (command,) = commands(applied.recorded, host, settings=SETTINGS)
    return _waiting_of(command)


def _waiting_of(command: str) -> dict[str, str]:
    record = json.loads(base64.b64decode(command.rpartition("<<< ")[2]))
    return dict(record.get("waiting", {}))


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(Host, "log", lambda self, text: found.append(text))
    return found


def test_a_run_records_since_when_the_node_waits_and_says_so_the_next_time(host: Host, said: list[str]) -> None:
    host.readings[NodeFact] = replace(STALE, applied=Applied(waiting=((KEY, BEFORE),)))
    assert _recorded(host, Applied(waiting=((KEY, BEFORE),))) == {KEY: BEFORE}
    assert any(unnamed(line, BEFORE) == [] for line in said)
    host.readings[NodeFact] = GOOD
    assert _recorded(host, Applied(waiting=((KEY, BEFORE),))) == {}


def test_a_forecast_is_silent_on_what_the_run_itself_restarts_and_a_run_is_not(
    host: Host, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "_waited", lambda *_: False)
    host.readings[NodeFact] = replace(GOOD, containerd=replace(GOOD.containerd, configured_at=20.0))
    for executing in (False, True):
        monkeypatch.setattr(verify, "is_executing", lambda executing=executing: executing)
        list(verify.verified._inner(settings=SETTINGS))
        assert bool(said) is executing
    assert said[0].startswith("restart pending: ")


def test_a_run_without_a_verdict_leaves_what_is_recorded(host: Host) -> None:
    host.readings[AppliedFact] = Applied(waiting=((KEY, BEFORE),))
    (command,) = commands(applied.recorded, host, settings=SETTINGS)
    assert _waiting_of(command) == {KEY: BEFORE}


def test_drift_tells_since_when_of_a_node_by_its_record() -> None:
    node = replace(STALE, applied=Applied(waiting=((KEY, BEFORE),)))
    report = contained_report(Answer("gpu-1", SETTINGS, node, None))
    (found,) = [each for each in report.findings if each.finding_class is FindingClass.REBOOT_PENDING]
    assert (found.what, found.since) == ("loaded module", BEFORE)
    assert f"since    {BEFORE}" in report_text((report,), False)


def test_a_plan_tells_since_when_of_the_step_that_waits_and_of_no_other() -> None:
    steps = plan(SETTINGS, replace(STALE, applied=Applied(waiting=((KEY, BEFORE), ("driver: GPU", NOW))))).steps
    waits = [step for step in steps if step.since]
    assert [(step.component, step.pending, step.since) for step in waits] == [("driver", True, BEFORE)]
    assert all(step.since is None for step in plan(SETTINGS, STALE).steps)


def test_of_several_nodes_the_one_that_has_waited_longest_is_told_in_one_entry() -> None:
    times = (("a", None), ("b", NOW), ("c", BEFORE), ("d", NOW))
    reports = tuple(NodeReport(name, (replace(REBOOT, since=since),)) for name, since in times)
    text = report_text(reports, False)
    assert text.count("driver: loaded module") == 1 and f"since    {BEFORE}" in text and NOW not in text
