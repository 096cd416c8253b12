"""What other programs read of a drift check: JSON, JUnit and Prometheus; whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport, NodeSummary
from gpunode.base.messages import Scope
from gpunode.fleet.reports.document import document
from gpunode.fleet.reports.junit import write_junit
from gpunode.fleet.reports.prometheus import metrics
from gpunode.fleet.reports.whole_file import write_whole
from gpunode.node.verdict import summary
from gpunode.system.health import GPU_MEMORY, NO_XIDS
from tests.reference.schemas import drift_schema
from tests.support.verify import GOOD as GOOD_NODE

pytestmark = pytest.mark.pure

OK = Finding("driver", FindingClass.OK, "loaded module", "580.95.05", "580.95.05", code="driver.loaded-module")
DRIFT = Finding(
    "containerd", FindingClass.DRIFT, "SystemdCgroup of runc", "false", "true", "edited by hand", "run the deploy",
    disruption=Disruption.restart, code="containerd.systemdcgroup",
)  # fmt: skip
GONE = Finding(
    "node",
    FindingClass.UNREACHABLE,
    "connection",
    "none",
    "ssh",
    "timed out",
    "check the address",
    code="node.connection",
)
AT = datetime(2026, 1, 15, 13, tzinfo=timezone(timedelta(hours=1)))
SUMMARY = NodeSummary("Debian 12", "6.1", "580.95.05", "open", None, None, ("H100", "A100"), 3, 2, None)
REPORTS = (NodeReport("gpu-1", (OK,), SUMMARY), NodeReport("gpu-2", (OK, DRIFT)), NodeReport("gpu-3", (GONE,)))
# All that a node may print, line ends and what XML cannot hold among it.
TEXT = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ['a"b\\', "\x00\x1b[31m", "\r\n\x85", "]]>"]
)
MAYBE = st.none() | TEXT
FINDINGS = st.builds(
    Finding, component=st.sampled_from(["driver", "node"]), finding_class=st.sampled_from(FindingClass), what=TEXT,
    actual=MAYBE, desired=MAYBE, cause=MAYBE, remedy=MAYBE, disruption=st.none() | st.sampled_from(Disruption),
)  # fmt: skip


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Return (metric, label values by label name) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_the_document_names_its_schema_and_each_hosts_gravest_class() -> None:
    found = document(REPORTS, version="1.2.3", at=AT)
    assert (found["schema"], found["gpunode"], found["exit_code"]) == (3, "1.2.3", 1)
    assert found["at"] == "2026-01-15T12:00:00+00:00"
    assert found["counts"] == {
        "hosts": {"drift": 1, "ok": 1, "unreachable": 1},
        "findings": {"drift": 1, "ok": 2, "unreachable": 1},
    }
    assert [host["class"] for host in found["hosts"].values()] == ["ok", "drift", "unreachable"]
    assert [item["what"] for item in found["hosts"]["gpu-2"]["findings"]] == [OK.what, DRIFT.what]
    del found["hosts"]["gpu-1"]["findings"][0]["class"]
    with pytest.raises(jsonschema.ValidationError, match="class"):
        jsonschema.validate(found, drift_schema())


@given(st.lists(FINDINGS, max_size=4))
def test_whatever_a_node_said_each_report_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, findings: list[Finding]
) -> None:
    reports = (NodeReport("gpu-1", tuple(findings)),)
    jsonschema.validate(json.loads(json.dumps(document(reports, at=AT))), drift_schema())
    path = tmp_path_factory.mktemp("junit") / "drift.xml"
    write_junit(reports, path, "gpunode drift", {})
    assert len(ElementTree.parse(path).getroot().findall(".//testcase")) == len(findings)
    bad = {(item.component, item.what, item.finding_class) for item in findings if item.finding_class != "ok"}
    assert sum(key[0] == "gpunode_node_finding" for key in samples(metrics(reports, 0))) == len(bad)


def test_junit_has_a_suite_per_node_and_tells_failures_from_errors(tmp_path: Path) -> None:
    write_junit(REPORTS, tmp_path / "drift.xml", "gpunode drift", {})
    root = ElementTree.parse(tmp_path / "drift.xml").getroot()
    counts = [[suite.get(key) for key in ("name", "tests", "failures", "errors")] for suite in root.iter("testsuite")]
    assert counts == [["gpu-1", "1", "0", "0"], ["gpu-2", "2", "1", "0"], ["gpu-3", "1", "0", "1"]]
    (failure,) = root.iter("failure")
    assert failure.attrib == {"type": "drift", "message": "actual false, desired true"}
    assert (failure.text or "").splitlines() == [
        f"code: {DRIFT.code}", f"cause: {DRIFT.cause}", f"remedy: {DRIFT.remedy}", "disruption: restart",
    ]  # fmt: skip


def test_a_suite_has_its_node_s_time_and_host(tmp_path: Path) -> None:
    cluster = NodeReport("admin@prod", (OK,), scope=Scope.CLUSTER)
    write_junit((REPORTS[0], REPORTS[2], cluster), tmp_path / "drift.xml", "gpunode drift", {"read": 2.25})
    root = ElementTree.parse(tmp_path / "drift.xml").getroot()
    # Jenkins' schema has no `skipped` there.
    assert root.attrib == {"name": "gpunode drift", "tests": "3", "failures": "0", "errors": "1", "time": "2.25"}
    assert [(suite.get("hostname"), suite.get("time")) for suite in root] == [
        ("gpu-1", "2.25"), ("gpu-3", "2.25"), (None, "2.25"),
    ]  # fmt: skip


# A state that a setting asks for, and one that none does.
ASKED = GPU_MEMORY.not_known("no uncorrected error", "ERR!", "look", of="0000:1a:00.0")
UNASKED = NO_XIDS.not_known(None, "no log", "look")


def test_what_is_not_known_counts_as_good_in_no_report(tmp_path: Path) -> None:
    reports = (NodeReport("gpu-1", (OK, ASKED)), NodeReport("gpu-2", (OK, UNASKED)))
    found = document(reports, at=AT)
    assert found["counts"] == {"hosts": {"not known": 2}, "findings": {"not known": 2, "ok": 2}}
    assert found["exit_code"] == 2 and document(reports[1:], at=AT)["exit_code"] == 0
    write_junit(reports, tmp_path / "drift.xml", "gpunode drift", {})
    root = ElementTree.parse(tmp_path / "drift.xml").getroot()
    counts = [
        [suite.get(key) for key in ("tests", "failures", "errors", "skipped")] for suite in root.iter("testsuite")
    ]
    assert counts == [["2", "1", "0", "0"], ["2", "0", "0", "1"]]
    numbers = samples(metrics(reports, 0))
    for name, item in (("gpu-1", ASKED), ("gpu-2", UNASKED)):
        assert numbers["gpunode_node_finding", "not known", item.code, "health", name, item.what] == 1
        assert numbers["gpunode_node_state", "not known", name] == 1 and numbers["gpunode_node_state", "ok", name] == 0


def test_metrics_say_state_counts_each_deviation_and_what_a_node_is() -> None:
    found = samples(metrics(REPORTS, 1000.5, 2.5, "1.2.3"))
    # The labels' values in the order of their names: class, code, component, node, what.
    drift = ("drift", "containerd.systemdcgroup", "containerd", "gpu-2", DRIFT.what)
    # cuda, driver, driver_flavour, gpu_model, gpunode, kernel, node, operating_system, toolkit.
    about = ("", "580.95.05", "open", "H100, A100", "", "6.1", "gpu-1", "Debian 12", "")
    assert {
        ("gpunode_node_state", "drift", "gpu-2"): 1,
        ("gpunode_node_state", "ok", "gpu-2"): 0,
        ("gpunode_node_state", "unreachable", "gpu-3"): 1,
        ("gpunode_node_findings", "ok", "driver", "gpu-2"): 1,
        ("gpunode_node_finding", *drift): 1,
        ("gpunode_node_info", *about): 1,
        ("gpunode_node_pci_gpus", "gpu-1"): 3,
        ("gpunode_node_gpus", "gpu-1"): 2,
        ("gpunode_build_info", "1.2.3"): 1,
        ("gpunode_drift_checked_timestamp_seconds",): 1000.5,
        ("gpunode_drift_duration_seconds",): 2.5,
    }.items() <= found.items()
    named = {(key[0], node) for key in found for node in ("gpu-1", "gpu-3") if node in key}
    # Of a node that nobody could read nothing is said; and nothing is wrong with the other.
    lacking = {("gpunode_node_finding", "gpu-1"), ("gpunode_node_info", "gpu-3"), ("gpunode_node_gpus", "gpu-3")}
    assert not lacking & named and not any(key[0].startswith("gpunode_node_waiting") for key in found)


def test_a_summary_says_what_is_loaded_before_what_is_on_the_disk_and_bus() -> None:
    name, bus = GOOD_NODE.gpus.gpus[0].name, GOOD_NODE.pci.gpus[0].name
    assert name != bus
    driver = replace(GOOD_NODE.driver, loaded_version="580.1", module_version="595.1")
    found = summary(replace(GOOD_NODE, driver=driver))
    assert (found.driver, found.gpu_models, found.gpus, found.gpus_on_bus) == ("580.1", (name,), 1, 1)
    gpus = replace(GOOD_NODE.gpus, status="no driver", gpus=())
    found = summary(replace(GOOD_NODE, driver=replace(driver, loaded_version=None), gpus=gpus))
    assert (found.driver, found.gpu_models, found.gpus, found.gpus_on_bus) == ("595.1", (bus,), 0, 1)


def test_a_node_waits_since_the_first_of_its_findings_of_a_class() -> None:
    times = ("2026-01-31T12:00:00Z", "2026-01-30T12:00:00Z", None, "no time")
    waiting = (replace(DRIFT, finding_class=FindingClass.REBOOT_PENDING, since=since) for since in times)
    found = samples(metrics((NodeReport("gpu-1", tuple(waiting)),), 0))
    assert found["gpunode_node_waiting_since_timestamp_seconds", "reboot pending", "gpu-1"] == 1_769_774_400


def test_a_report_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpunode.prom"
    path.write_text("old\n")

    def full(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fchmod", full)
        with pytest.raises(OSError, match="No space left"):
            write_whole(path, metrics(REPORTS, 0))
    assert path.read_text() == "old\n" and list(tmp_path.iterdir()) == [path]
    write_whole(path, metrics(REPORTS, 0))
    assert path.read_text().startswith("# HELP gpunode_node_state") and list(tmp_path.iterdir()) == [path]
    assert path.stat().st_mode & 0o777 == 0o644, "others may read it"


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    link, real = tmp_path / "gpunode.prom", tmp_path / "real" / "file.prom"
    real.parent.mkdir()
    link.symlink_to(real)
    write_whole(link, metrics(REPORTS, 0))
    assert link.is_symlink() and real.read_text().startswith("# HELP")


def test_what_is_no_file_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Open for both, so that neither side waits for the other.
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        write_whole(pipe, metrics(REPORTS, 0))
        assert os.read(reader, 65536).startswith(b"# HELP")
    finally:
        os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_what_the_program_has_open_is_written_to_be_it_a_pipe_or_a_file(name: str, tmp_path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from gpunode.fleet.reports.whole_file import write_whole\n"
        "print('before', flush=True)\n"
        f"write_whole(pathlib.Path({name!r}), 'a report\\n')\n"
        "print('after')\n"
    )
    piped = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (piped.stdout, piped.stderr) == ("before\na report\nafter\n", "")
    with (tmp_path / "output").open("w") as output:
        subprocess.run([sys.executable, "-c", program], stdout=output, check=True)
    assert (tmp_path / "output").read_text() == "before\na report\nafter\n" and len(list(tmp_path.iterdir())) == 1
