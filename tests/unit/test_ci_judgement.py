"""What `gpunode ci` says of machines that did not come up: each its own truth, on the terminal and in JUnit.

How the machines answer is SIMULATED.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpunode.base.findings import Finding, FindingClass
from gpunode.facts.system import LONGEST
from gpunode.fleet import nodes as fleet
from gpunode.fleet.reports.run_end import BROKEN_OFF, HostEnd, failure_of
from gpunode.history.told import told
from gpunode.system.readiness import Readiness
from tests.support.ci_judgement import READY, Machines, answer
from tests.support.messages import unnamed
from tests.support.output_modes import GOOD, Job

pytestmark = pytest.mark.pure
# What Jenkins' schema of these reports allows, junit-10.xsd of its xUnit plugin: element -> attributes, and elements.
_OF_CASE = {"skipped", "error", "failure", "system-out", "system-err"}
ALLOWED = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname"},
        {"testcase", "properties"},
    ),
    "testcase": ({"name", "time", "classname"}, _OF_CASE),
    **{name: ({"type", "message"}, set()) for name in ("skipped", "error", "failure")},
}
REFUSED = Finding(
    "cuda", FindingClass.UNSUPPORTED, "preflight", cause="CUDA 13.0 needs driver 580", remedy="set cuda.version",
    code="preflight.cuda-driver-too-old",
)  # fmt: skip
FAILED = "run.operation-failed"

BROKEN = Readiness("error", ("status: error", "detail: no datasource"), "running")


def test_a_machine_that_fails_early_is_told_as_failed_and_the_others_as_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(
        tmp_path, monkeypatch, answer("booting", "refused"), answer("broken", BROKEN), answer("up", READY)
    )
    done = machines.ci("--wait", "600")
    assert done.exit_code == 1 and len(machines.seconds) == 1
    told, errors = done.stderr, machines.errors()
    assert "600" not in told + str(errors) and "--wait" not in told + str(errors)
    assert set(errors) == {"booting", "broken"}
    for text in (told, errors["broken"]):
        assert unnamed(text, "no datasource", "/var/log/cloud-init-output.log") == []
    for text in (told, errors["booting"]):
        assert unnamed(text, "broken", "refused") == []
    assert [line for line in told.splitlines() if line.startswith("up: ")] == ["up: ready: cloud-init: done"]


def test_a_machine_that_is_late_is_told_how_long_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(tmp_path, monkeypatch, answer("booting", "refused"), answer("up", READY))
    done = machines.ci("--wait", "0")
    assert done.exit_code == 1
    assert set(machines.errors()) == {"booting"}
    for text in (done.stderr, machines.errors()["booting"]):
        assert unnamed(text, "0 s", "refused", "--wait") == []


def test_a_key_that_cannot_be_used_ends_the_waiting_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(tmp_path, monkeypatch, answer("gpu-1", "No such private key file: /k", lasting=True))
    done = machines.ci("--wait", "600")
    assert done.exit_code == 1 and len(machines.seconds) == 1
    for text in (done.stderr, machines.errors()["gpu-1"]):
        assert unnamed(text, "/k", "GPUNODE_CI_KEY") == []


def test_a_document_of_machines_that_did_not_come_up_has_nothing_of_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Machines(tmp_path, monkeypatch, answer("booting", "refused")).ci("--wait", "0", "--output", "json")
    document = json.loads(done.stdout)
    assert set(document["hosts"]) == {"booting"} and "cluster" not in document
    assert not told(document).has_cluster


@pytest.mark.parametrize(("wait", "seconds"), [(0, LONGEST), (60, 60), (600, fleet.ANSWER_SECONDS)])
def test_a_machine_that_hangs_has_no_longer_than_is_left_and_as_long_as_it_takes_to_answer(
    wait: int, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines = Machines(tmp_path, monkeypatch, answer("gpu-1", "", lasting=True))
    machines.ci("--wait", str(wait))
    assert machines.seconds == [pytest.approx(seconds, abs=1)]


def _counted(suite: ElementTree.Element) -> dict[str, str]:
    cases = list(suite.iter("testcase"))
    counts = {f"{kind}s": len(list(suite.iter(kind))) for kind in ("failure", "error")}
    return {key: str(value) for key, value in {"tests": len(cases), **counts}.items()}


def _checked(file: Path) -> dict[str, ElementTree.Element]:
    """Return machine -> its suite of a report that CI servers can read, with right counts and times."""
    root = ElementTree.parse(file).getroot()
    for element in root.iter():
        attributes, children = ALLOWED[element.tag]
        assert set(element.attrib) <= attributes and {each.tag for each in element} <= children
    assert _counted(root).items() <= root.attrib.items()
    for suite in root:
        skipped = str(len(list(suite.iter("skipped"))))
        assert (_counted(suite) | {"skipped": skipped, "hostname": suite.get("name")}).items() <= suite.attrib.items()
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp") or "")
        at = datetime.fromisoformat(f"{suite.get('timestamp')}+00:00")
        assert abs((datetime.now(UTC) - at).total_seconds()) < 60
        times = sum(float(case.get("time") or 0) for case in suite.iter("testcase"))
        # All at once on all machines, the reading included.
        assert times - 0.01 <= float(suite.get("time") or 0) == float(root.get("time") or 0)
    return {str(suite.get("name")): suite for suite in root}


def _results(suite: ElementTree.Element) -> dict[tuple[str | None, str | None], str]:
    """Return (component, what) -> passed, or the kind of its result."""
    return {
        (case.get("classname"), case.get("name")): next((each.tag for each in case), "passed")
        for case in suite.iter("testcase")
    }


RUN = ("run", "pyinfra deploys/gpu_node.py")


def test_each_machine_has_its_own_end_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = (
        HostEnd("failed", failure=failure_of("Install the driver", ["No space left on device. Remedy: make room"])),
        HostEnd("refused", refused=(REFUSED,), findings=(GOOD,)),
        HostEnd("gone", unreached="no route to host"),
        HostEnd("left", left_alone="something else cordoned it"),
        HostEnd("good", findings=(GOOD,)),
    )
    job = Job(tmp_path, monkeypatch, 1, *ends)
    document = json.loads(job.ci("--output", "json").stdout)
    assert document["exit_code"] == 1
    suites = _checked(job.junit)
    assert ElementTree.parse(job.junit).getroot().get("name") == "gpunode ci"
    results = {name: _results(suite) for name, suite in suites.items()}
    assert all(found["machine", "came up"] == "passed" for found in results.values())
    assert {name: found.get(RUN) for name, found in results.items()} == {
        "failed": None, "refused": "skipped", "gone": None, "left": "skipped", "good": "passed",
    }  # fmt: skip
    (failure,) = suites["failed"].iter("error")
    assert results["failed"]["run", "“Install the driver”"] == "error"
    assert unnamed(failure.text or "", FAILED, "No space left on device", "make room", "the job's log") == []
    assert results["gone"]["node", "connection"] == "error"
    (refusal,) = suites["refused"].iter("failure")
    assert refusal.attrib == {"type": "unsupported", "message": REFUSED.cause}
    assert unnamed(refusal.text or "", REFUSED.code, REFUSED.remedy or "-") == []
    # The run is a test of its own, with its time.
    run = next(case for case in suites["good"].iter("testcase") if case.get("classname") == "run")
    assert float(run.get("time") or 0) > 0


def test_a_limit_and_settings_are_those_of_waiting_run_and_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, monkeypatch, 0, HostEnd("one", findings=(GOOD,)), HostEnd("two", findings=(GOOD,)))
    document = json.loads(job.ci("--limit", "one", "--set", "driver.branch=580", "--output", "json").stdout)
    assert (document["exit_code"], list(document["hosts"])) == (0, ["one"])
    assert (document["limit"], document["set"]) == (["one"], ["driver.branch=580"])
    words = f'-y --limit one {job.inventory} deploys/gpu_node.py {{"driver": {{"branch": "580"}}}}'
    assert (tmp_path / "words").read_text().strip() == words


def test_a_run_that_is_broken_off_passes_on_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(tmp_path, monkeypatch, 0, HostEnd("one", findings=(GOOD,)), HostEnd("two", findings=(GOOD,)))
    (tmp_path / "events").write_text("")
    assert job.ci().exit_code == 1
    for suite in _checked(job.junit).values():
        (error,) = suite.iter("error")
        assert unnamed(error.text or "", BROKEN_OFF) == []


def test_machines_that_were_not_provisioned_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machines = Machines(tmp_path, monkeypatch, answer("broken", BROKEN), answer("up", READY))
    assert machines.ci("--wait", "600").exit_code == 1
    suites = _checked(machines.junit)
    assert _results(suites["up"]) == {("machine", "came up"): "passed", RUN: "skipped"}
    (skipped,) = suites["up"].iter("skipped")
    assert unnamed(skipped.text or "", "broken") == []
    assert _results(suites["broken"]) == {("machine", "came up"): "error"}
