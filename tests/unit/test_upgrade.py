"""What an earlier gpunode wrote is read by this one and changed by nothing (docs/how-to/upgrade-gpunode.md).

The recording is of commit a2002961; its README says how it was made.
"""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
import subprocess
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gpunode.agent import pull
from gpunode.agent.collected import Collected, judged
from gpunode.agent.pull import BUNDLE, Places, Refused
from gpunode.base.decision import bad
from gpunode.base.document import REPORT_SCHEMA
from gpunode.base.findings import FindingClass
from gpunode.base.probe import shell_text
from gpunode.components.kubelet.change import change
from gpunode.fleet.rollout.journal import Journal
from gpunode.history.asking import Question, answers, asking
from gpunode.history.place import Place
from gpunode.history.told import told
from gpunode.history.writing import record
from gpunode.kubernetes.nodes.cluster_nodes import ANNOTATION, MANAGER, parse_note
from gpunode.kubernetes.nodes.labels import OURS, owned
from gpunode.node.plan import plan
from gpunode.node.preflight import refusals
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.applied import PATH
from gpunode.system.transaction import STATES, parse_interrupted, parse_journal
from tests.support.kubelet import KUBEADM
from tests.support.recorded_node import RecordedNode

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

BEFORE = Path(__file__).parent / "data" / "a2002961"
NODES = sorted(path.name for path in (BEFORE / "nodes").iterdir())
WHOLE = sorted(path.parent.name for path in BEFORE.glob("nodes/*/applied.json"))
AT = datetime(2026, 11, 27, 20, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _where_the_settings_name_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BEFORE)


def read(name: str) -> Any:
    return json.loads((BEFORE / name).read_text())


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_an_earlier_gpunode_is_as_desired_and_has_nothing_to_do(name: str) -> None:
    found = RecordedNode(BEFORE / "nodes" / name)
    settings = settings_from(found.data)
    assert refusals(settings, found.node, AT.date()) == ()
    findings = judge(settings, found.node)
    assert bad(*findings) == () and len(findings) > 10
    assert plan(settings, found.node).steps == ()


@pytest.mark.parametrize("name", WHOLE)
def test_a_run_on_a_node_of_an_earlier_gpunode_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = RecordedNode(BEFORE / "nodes" / name)
    operations, commands = found.run(monkeypatch)
    # The record tells which gpunode, and which settings with their defaults, were there last.
    now = (version("gpunode"), settings_from(found.data).digest())
    rewritten = (found.node.applied.gpunode, found.node.applied.settings) != now
    assert [f"> {PATH}.gpunode-new" in each for each in commands] == [True] * rewritten
    assert "Verify | Record what was applied" in operations and len(operations) > 20


def test_a_kubelet_of_an_earlier_gpunode_is_not_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    operations, commands = RecordedNode(BEFORE / "nodes" / "kubelet").run(monkeypatch, "kubelet")
    assert (commands, operations) == ([], ["Kubelet | Configure the kubelet"])


def test_what_a_kubelet_had_before_an_earlier_gpunode_is_put_back() -> None:
    found = RecordedNode(BEFORE / "nodes" / "kubelet")
    back = change(found.node.kubelet, settings_from({}).kubernetes.kubelet)
    assert back is not None and (back.cleared or (back.path, back.text))[1] == KUBEADM


def test_cordon_and_labels_of_an_earlier_gpunode_are_its_own() -> None:
    annotations = read("annotations.json")
    note = parse_note(annotations[ANNOTATION])
    assert note is not None and (note.cordon, note.since) == (MANAGER, "2026-11-27T20:00:00Z")
    assert owned(annotations[OURS]) == {"nvidia.com/gpu.present", "example.com/rack"}
    # A cordon whose note a newer gpunode wrote is not lifted.
    assert parse_note(json.dumps({"schema": 2, **json.loads(annotations[ANNOTATION])})) is None


def test_the_recorded_runs_wrote_the_files_of_every_component() -> None:
    files = {path for name in NODES for path in RecordedNode(BEFORE / "nodes" / name).files}
    parts = (
        "sources.list.d/gpunode-cuda", "yum.repos.d/gpunode-toolkit", "preferences.d/gpunode-driver", "versionlock",
        "profile.d/cuda", "nvidia-dev-char", "containerd/config.toml", "containerd.service.d", "docker/daemon.json",
        "nvidia-mps.service", "gpunode-mig-layout", "gpunode/mig/layout", "gpunode-power", "nvidia-dcgm",
        "kubelet/config.yaml", PATH,
    )  # fmt: skip
    assert [part for part in parts if not any(part in path for path in files)] == []


def test_a_file_that_was_changed_since_is_found_and_written(monkeypatch: pytest.MonkeyPatch) -> None:
    # The node of the tests above does show a difference where there is one.
    found = RecordedNode(BEFORE / "nodes" / "rocky")
    found.files["/etc/profile.d/cuda.sh"] += "# by hand\n"
    assert found.run(monkeypatch)[1]


@pytest.mark.real
def test_journals_of_an_earlier_gpunode_are_understood() -> None:
    states = {}
    for path in (BEFORE / "journals").iterdir():
        journal = base64.b64encode(path.read_bytes()).decode()
        found = parse_journal(["unit=inactive", f"path={path}", f"journal={journal}"])
        states[path.stem] = found.state
        assert found.interrupted == (path.stem == "began") and found.target and len(found.target) == 64
        assert (found.reason is None) == (path.stem != "failed")
    assert states == {state: state for state in STATES}
    probe = shell_text("system/interrupted", FOLDER=str(BEFORE / "journals"), LEFT="", AGED="", LOCK="/absent")
    text = f"systemctl() {{ echo inactive; }}\n{probe}"
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    reading = parse_interrupted(done.stdout.splitlines())
    assert (reading.names, reading.newer) == (("began",), ())


def test_a_history_of_an_earlier_gpunode_answers_and_goes_on(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "history.sqlite") as connection:
        connection.executescript((BEFORE / "history.sql").read_text())
    place = Place(tmp_path / "history.sqlite")
    with asking(place) as connection:
        found = answers(connection, Question("fleet"))
    assert {(each.host, each.interval.since) for each in found} == {("gpu-2", AT)}
    later = {**read("drift.json"), "at": (AT + timedelta(hours=1)).isoformat()}
    later["hosts"] = {**later["hosts"], "gpu-2": later["hosts"]["gpu-1"]}
    record(place, told(later), "fleet")
    with asking(place) as connection:
        assert answers(connection, Question("fleet")) == []


@pytest.mark.parametrize(
    ("name", "command", "hosts"),
    [
        ("drift.json", "drift", {"gpu-1", "gpu-2"}),
        ("apply.json", "apply", {"gpu-1", "gpu-2"}),
        ("agent/report.json", "agent", {"gpu-1"}),
        ("rollout/rollout.json", "rollout", set()),
    ],
)
def test_a_document_of_an_earlier_gpunode_is_taken(name: str, command: str, hosts: set[str]) -> None:
    found = told(read(name))
    assert (found.command, {each.name for each in found.hosts}, found.at) == (command, hosts, AT)
    states = {key for each in found.hosts for key in each.states}
    assert bool(states) == ("gpu-2" in hosts)


def test_a_report_of_an_earlier_agent_is_judged() -> None:
    found = judged("gpu-1", Collected(True, read("agent/report.json")), AT, timedelta(days=1))
    assert {each.finding_class for each in found.findings} == {FindingClass.OK}
    assert found.summary is not None and found.summary.driver == "580.95.05"


@pytest.mark.real
@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_bundle_and_an_agent_s_state_of_an_earlier_gpunode_are_taken(tmp_path: Path) -> None:
    places = Places(state=tmp_path)
    places.private.mkdir()
    shutil.copy(BEFORE / "agent" / "state.json", places.private)
    last = pull._state(places)
    text = pull.verified((BEFORE / "agent" / BUNDLE).read_bytes(), BEFORE / "agent" / "signers")
    found = pull.judged(text, "gpu-1", last, AT.timestamp())
    assert (found["number"], found["digest"]) == (7, last["digest"])
    assert settings_from(found["settings"]).driver.version == "580.95.05"
    with pytest.raises(Refused) as refused:
        pull.judged(text, "gpu-1", {**last, "number": 8}, AT.timestamp())
    assert refused.value.code == "agent.bundle-older"


def test_an_agent_s_own_findings_are_in_the_form_of_today_s_documents() -> None:
    assert pull.DOCUMENT_SCHEMA == REPORT_SCHEMA


def test_a_rollout_of_an_earlier_gpunode_is_understood() -> None:
    progress = Journal(BEFORE / "rollout" / "journal").progress
    assert progress is not None and progress.untouched == ("gpu-2",)
