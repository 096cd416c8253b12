"""What `gpunode ci` says of machines that did not come up: each its own truth, on the terminal and in JUnit.

How the machines answer is SIMULATED.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpunode.base.findings import FindingClass, NodeReport
from gpunode.facts.readiness import LONGEST
from gpunode.fleet import drift
from gpunode.fleet import nodes as fleet
from gpunode.fleet.reports.run_end import HostEnd, failure_of
from gpunode.fleet.run.events import EVENTS
from gpunode.history.told import told
from gpunode.system.readiness import Readiness
from tests.support.ci_judgement import READY, Machines, answer
from tests.support.messages import unnamed
from tests.support.run_end import GOOD

pytestmark = pytest.mark.pure

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


def test_the_report_names_the_operation_that_failed_and_blames_no_other_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = failure_of("Install the driver", ["no room on /boot. Remedy: make room"])
    ends = [HostEnd("bad", failure=failure), HostEnd("good", findings=GOOD)]

    def run(inventory: Path, environment: dict[str, str]) -> int:
        event = {"kind": "ended", "hosts": [end.to_json() for end in ends]}
        Path(environment[EVENTS]).write_text(json.dumps(event) + "\n")
        return 1

    monkeypatch.setattr("gpunode.cli.ci._exit_status", run)
    monkeypatch.setattr(drift, "inspect", lambda inventory: tuple(NodeReport(end.name, GOOD) for end in ends))
    machines = Machines(tmp_path, monkeypatch, answer("bad", READY), answer("good", READY))
    done = machines.ci("--wait", "0", "--output", "json")
    assert done.exit_code == 1
    failed = {
        name: [item for item in host["findings"] if item["class"] == FindingClass.ERROR]
        for name, host in json.loads(done.stdout)["hosts"].items()
    }
    (found,) = failed["bad"]
    assert failed["good"] == [] and set(machines.errors()) == {"bad"}
    assert (found["code"], found["cause"], found["remedy"]) == ("run.operation-failed", "no room on /boot", "make room")
    assert found["what"] == failure.what and "log" in found
    assert unnamed(machines.errors()["bad"], "run.operation-failed", "no room on /boot", "make room", "log") == []
