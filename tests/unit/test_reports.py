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
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.node_summary import NodeSummary
from gpunode.cli.drift import unwritten_reports
from gpunode.fleet.reports import junit
from gpunode.fleet.reports.document import document, schema
from gpunode.fleet.reports.junit import write_junit
from gpunode.fleet.reports.prometheus import metrics, write_metrics
from gpunode.node.summary import summary
from tests.support.verify import GOOD as GOOD_NODE

pytestmark = pytest.mark.pure

OK = Finding("driver", FindingClass.OK, "loaded module", "580.95.05", "580.95.05")
DRIFT = Finding(
    "containerd", FindingClass.DRIFT, "SystemdCgroup of runc", "false", "true", "edited by hand", "run the deploy",
    disruption=Disruption.restart,
)  # fmt: skip
GONE = Finding("node", FindingClass.UNREACHABLE, "connection", "none", "ssh", "timed out", "check the address")
AT = datetime(2026, 1, 15, 13, tzinfo=timezone(timedelta(hours=1)))
SUMMARY = NodeSummary("Debian 12", "6.1", "580.95.05", "open", None, None, ("H100", "A100"), 3, 2, None)
REPORTS = (NodeReport("gpu-1", (OK,), SUMMARY), NodeReport("gpu-2", (OK, DRIFT)), NodeReport("gpu-3", (GONE,)))
# All that a node may print, line ends and what XML cannot hold among it.
TEXT = st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(
    ['a"b\\', "\x00\x1b[31m", "\r\n\x85", "]]>"]
)
FINDINGS = st.builds(
    Finding,
    component=st.sampled_from(["driver", "node"]),
    finding_class=st.sampled_from(FindingClass),
    what=TEXT,
    actual=st.none() | TEXT,
    desired=st.none() | TEXT,
    cause=st.none() | TEXT,
    remedy=st.none() | TEXT,
    disruption=st.none() | st.sampled_from(Disruption),
)


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Return (metric, label values by label name) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_document_names_its_schema_and_each_hosts_gravest_class() -> None:
    found = document(REPORTS, version="1.2.3", at=AT)
    assert (found["schema"], found["gpunode"], found["exit_code"]) == (2, "1.2.3", 1)
    assert found["at"] == "2026-01-15T12:00:00+00:00"
    assert found["counts"] == {
        "hosts": {"drift": 1, "ok": 1, "unreachable": 1},
        "findings": {"drift": 1, "ok": 2, "unreachable": 1},
    }
    assert {name: host["class"] for name, host in found["hosts"].items()} == {
        "gpu-1": "ok", "gpu-2": "drift", "gpu-3": "unreachable",
    }  # fmt: skip
    assert [item["what"] for item in found["hosts"]["gpu-2"]["findings"]] == ["loaded module", "SystemdCgroup of runc"]


@given(st.lists(FINDINGS, max_size=4))
def test_every_document_is_as_its_schema_says(findings: list[Finding]) -> None:
    jsonschema.validate(json.loads(json.dumps(document((NodeReport("gpu-1", tuple(findings)),), at=AT))), schema())


def test_the_schema_refuses_a_finding_without_its_class() -> None:
    found = document(REPORTS, at=AT)
    del found["hosts"]["gpu-1"]["findings"][0]["class"]
    with pytest.raises(jsonschema.ValidationError, match="class"):
        jsonschema.validate(found, schema())


def test_junit_has_a_suite_per_node_and_tells_failures_from_errors(tmp_path: Path) -> None:
    write_junit(REPORTS, tmp_path / "drift.xml")
    root = ElementTree.parse(tmp_path / "drift.xml").getroot()
    assert [(suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("errors"))
            for suite in root.findall("testsuite")] == [
        ("gpu-1", "1", "0", "0"), ("gpu-2", "2", "1", "0"), ("gpu-3", "1", "0", "1"),
    ]  # fmt: skip
    failure = root.find(".//failure")
    assert (
        failure is not None
        and failure.get("type") == "drift"
        and failure.get("message") == "actual false, desired true"
    )
    assert (
        failure.text
        == "code: containerd.systemdcgroup\ncause: edited by hand\nremedy: run the deploy\ndisruption: restart"
    )


@given(st.lists(FINDINGS, max_size=4))
def test_junit_can_be_read_whatever_a_node_said(
    tmp_path_factory: pytest.TempPathFactory, findings: list[Finding]
) -> None:
    path = tmp_path_factory.mktemp("junit") / "drift.xml"
    write_junit((NodeReport("gpu-1", tuple(findings)),), path)
    assert len(ElementTree.parse(path).getroot().findall(".//testcase")) == len(findings)


def test_metrics_say_state_counts_and_each_deviation() -> None:
    found = samples(metrics(REPORTS, 1000.5).decode())
    # The labels' values in the order of their names: class, code, component, node, what.
    assert found["gpunode_node_state", "drift", "gpu-2"] == 1
    assert found["gpunode_node_state", "ok", "gpu-2"] == 0
    assert found["gpunode_node_state", "unreachable", "gpu-3"] == 1
    assert found["gpunode_node_findings", "ok", "driver", "gpu-2"] == 1
    assert (
        found[
            "gpunode_node_finding", "drift", "containerd.systemdcgroup", "containerd", "gpu-2", "SystemdCgroup of runc"
        ]
        == 1
    )
    assert not any(key[0] == "gpunode_node_finding" and "gpu-1" in key for key in found)
    assert found["gpunode_drift_checked_timestamp_seconds",] == 1000.5


def test_metrics_say_what_a_node_is_and_how_long_the_check_took() -> None:
    found = samples(metrics(REPORTS, 0, 2.5, "1.2.3").decode())
    # Labels by name: cuda, driver, driver_flavour, gpu_model, gpunode, kernel, node, operating_system, toolkit.
    about = ("", "580.95.05", "open", "H100, A100", "", "6.1", "gpu-1", "Debian 12", "")
    assert found["gpunode_node_info", *about] == 1
    assert (found["gpunode_node_pci_gpus", "gpu-1"], found["gpunode_node_gpus", "gpu-1"]) == (3, 2)
    # Of a node that nobody could read nothing is said.
    assert not any(key[0] in ("gpunode_node_info", "gpunode_node_gpus") and "gpu-3" in key for key in found)
    assert (found["gpunode_drift_duration_seconds",], found["gpunode_build_info", "1.2.3"]) == (2.5, 1)


def test_a_summary_says_what_is_loaded_before_what_is_on_the_disk_and_bus() -> None:
    name, bus = GOOD_NODE.gpus.gpus[0].name, GOOD_NODE.pci.gpus[0].name
    assert name != bus
    found = summary(
        replace(GOOD_NODE, driver=replace(GOOD_NODE.driver, loaded_version="580.1", module_version="595.1"))
    )
    assert (found.driver, found.gpu_models, found.gpus, found.gpus_on_bus) == ("580.1", (name,), 1, 1)
    broken = replace(GOOD_NODE, gpus=replace(GOOD_NODE.gpus, status="no driver", gpus=()))
    unloaded = replace(broken, driver=replace(GOOD_NODE.driver, loaded_version=None, module_version="595.1"))
    found = summary(unloaded)
    assert (found.driver, found.gpu_models, found.gpus, found.gpus_on_bus) == ("595.1", (bus,), 0, 1)


def test_a_node_waits_since_the_first_of_its_findings_of_a_class() -> None:
    def waiting(what: str, since: str | None) -> Finding:
        return Finding("driver", FindingClass.REBOOT_PENDING, what, since=since)

    times = ("2026-01-31T12:00:00Z", "2026-01-30T12:00:00Z", None, "no time")
    report = NodeReport("gpu-1", tuple(waiting(str(at), since) for at, since in enumerate(times)))
    found = samples(metrics((report,), 0).decode())
    assert found["gpunode_node_waiting_since_timestamp_seconds", "reboot pending", "gpu-1"] == 1_769_774_400
    assert not any(key[0].startswith("gpunode_node_waiting") for key in samples(metrics(REPORTS, 0).decode()))


@given(st.lists(FINDINGS, max_size=4))
def test_metrics_can_be_read_whatever_a_node_said(findings: list[Finding]) -> None:
    found = samples(metrics((NodeReport("gpu-1", tuple(findings)),), 0).decode())
    bad = {(item.component, item.what, item.finding_class) for item in findings if item.finding_class != "ok"}
    assert sum(1 for key in found if key[0] == "gpunode_node_finding") == len(bad)


def test_a_report_is_replaced_as_a_whole_and_readable_by_others(tmp_path: Path) -> None:
    path = tmp_path / "gpunode.prom"
    path.write_text("old\n")
    write_metrics(REPORTS, path, 0)
    assert path.read_text().startswith("# HELP gpunode_node_state")
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == ["gpunode.prom"]


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpunode.prom"
    path.write_text("old\n")

    def full(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with pytest.raises(OSError, match="No space left"):
        write_metrics(REPORTS, path, 0)
    assert path.read_text() == "old\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["gpunode.prom"]


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "gpunode.prom"
    link.symlink_to(tmp_path / "real" / "file.prom")
    write_metrics(REPORTS, link, 0)
    assert link.is_symlink()
    assert (tmp_path / "real" / "file.prom").read_text().startswith("# HELP")


def test_what_is_no_file_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # Open for both, so that neither side waits for the other.
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    try:
        write_metrics(REPORTS, pipe, 0)
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
        filed = subprocess.run([sys.executable, "-c", program], stdout=output, check=False)
    assert filed.returncode == 0
    assert (tmp_path / "output").read_text() == "before\na report\nafter\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["output"]


def test_a_report_that_was_not_written_is_named_and_the_others_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, written = tmp_path / "gpunode.xml", tmp_path / "gpunode.prom"

    def no_space(reports: object, path: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(junit, "write_junit", no_space)
    told = (f"{full}: the report was not written: No space left on device",)
    assert unwritten_reports(REPORTS, full, written) == told
    assert written.exists() and not full.exists()
    assert unwritten_reports(REPORTS, None, written) == ()
