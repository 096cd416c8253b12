"""What programs of a node print when they fail, as cause and remedy, by the rows of explanations.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.explanations import UNDOING, explained, failure, rules
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

SAID: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "data/explanations.yaml").read_text(encoding="utf-8")
)
LINES = {row["line"]: row.get("kind") for row in SAID["node"]}


def kinds(*lines: str, program: str = "node") -> list[str]:
    """Return the kinds of the rows that explain the lines."""
    texts = explained(lines, program)
    return [next(rule.kind for rule in rules(program) for line in lines if (rule.told(line) == text)) for text in texts]


@pytest.mark.parametrize(("program", "row"), [(program, rows) for program, all_ in SAID.items() for rows in all_])
def test_a_line_is_of_its_kind_and_what_it_names_is_told(program: str, row: dict[str, Any]) -> None:
    found = explained([row["line"]], program)
    assert kinds(row["line"], program=program) == ([row["kind"]] if "kind" in row else [])
    for text in found:
        assert unnamed(f"{text.cause}; {text.remedy}", *row["names"]) == []
        more = ["gpunode: zypper exits 4"] if program == "zypper" else []
        assert failure(["x", row["line"], *more], "x")[0] == text


def test_a_cause_is_told_once_and_what_only_follows_from_it_not_at_all() -> None:
    lines = [line for line, kind in LINES.items() if kind in ("full", "script", "killed")]
    assert kinds(*lines) == ["full"]


def test_several_causes_are_told_in_their_order_and_three_at_most() -> None:
    lines = [next(line for line in LINES if LINES[line] == kind) for kind in ("absent", "lock", "unfetched", "dated")]
    assert kinds(*lines) == ["absent", "lock", "unfetched"]


def test_words_that_zypper_shares_with_dnf_are_zypper_s_where_it_failed_alone() -> None:
    line = "  - nothing provides dkms needed by kmod-nvidia-open-dkms-3:580.95.05-1.el9.noarch"
    (of_dnf,), (of_zypper,) = failure([line], "sh"), failure([line, "gpunode: zypper exits 4"], "sh")
    assert "zypper locks" in of_zypper.remedy and "zypper" not in of_dnf.remedy


JOURNAL = (
    "Job for containerd.service failed because the control process exited with error code.",
    "modprobe: FATAL: Module overlay not found in directory /lib/modules/6.18.44",
    "containerd.service: Failed with result 'exit-code'.",
)


def test_a_killed_package_manager_counts_before_what_the_script_says_of_its_packages() -> None:
    lines = [
        "E: Sub-process /usr/bin/dpkg exited unexpectedly",
        "gpunode: the driver's packages could not be installed",
    ]
    (found,) = failure([*lines, "gpunode: exit status 1"], "sh")
    assert "dpkg was killed" in found.cause


def test_who_has_a_gpu_open_is_named_only_where_the_script_names_no_process() -> None:
    users = ["gpunode: exit status 1", "gpunode: a GPU is open in process 41 (serving)"]
    (found,) = failure(["gpunode: GPU 0 is in use by process 42 (notebook) of nobody", *users], "sh")
    assert "serving" not in found.cause
    (found,) = failure(["modprobe: FATAL: Module nvidia is in use.", *users], "sh")
    assert "process 41 (serving)" in found.cause


def test_zypper_s_history_counts_before_the_metadata_that_it_could_not_read() -> None:
    url = "http://mirror.example/rpm?proxy=127.0.0.1&proxyport=1"
    lines = [
        f"[toolkit|{url}] Valid metadata not found at specified URL",
        f" - Download (curl) error for '{url}/content':",
    ]
    own = ["gpunode: the repository toolkit could not be read or verified", "gpunode: exit status 1"]
    lines.append("Error code: Connection failed")
    refused = "Error message: Failed to connect to 127.0.0.1 port 1 after 0 ms: Couldn't connect to server"
    (found,) = failure([*lines, refused, *own], "sh")
    assert "port 1" in found.cause and "there is no repository" not in found.cause
    (found,) = failure([*lines[:1], *own], "sh")
    assert "there is no repository" in found.cause


def test_what_the_script_finds_counts_before_harmless_lines_of_a_journal() -> None:
    undoing = ["gpunode: containerd is DOWN", "gpunode: remedy: start it", "gpunode: exit status 1"]
    (found,) = failure([*JOURNAL, "gpunode: containerd is failed", f"gpunode: {UNDOING}", *undoing], "sh")
    assert found.cause.startswith("containerd is failed") and JOURNAL[-1] in found.cause
    assert found.cause.endswith("containerd is DOWN")
    assert "journalctl -u containerd.service" in found.remedy and "start it" in found.remedy
    assert "overlay" not in found.remedy


@pytest.mark.parametrize(
    ("lines", "program", "parts"),
    [
        (["a", "cp: error writing 'x'", "gpunode: exit status 3"], "env", ("cp", "3", "error writing 'x'")),
        (["10%\r20%\x1b[0m", "gpunode: exit status 4"], "dnf", ("dnf", "10% 20%")),
        (["gpunode: exit status 7"], "systemctl", ("systemctl", "7")),
        ([], "systemctl start x", ("systemctl", "killed")),
        (["gpunode: it fails:", "why", "because", "gpunode: exit status 1"], "sh", ("it fails: why, because",)),
        (
            ["curl: (23) Failure writing", "gpunode: no space is left at /var"],
            "sh",
            ("(23)", "/var"),
        ),
        (["GPU 0 is in use", "gpunode: a GPU is open in process 8 (python3)"], "sh", ("in use", "process 8 (python3)")),
    ],
)
def test_words_that_nobody_knows_are_the_cause_themselves(lines: list[str], program: str, parts: tuple[str]) -> None:
    (found,) = failure(lines, program)
    assert [part for part in parts if part not in found.cause] == [] and found.remedy
    # Where nothing was printed, the remedy is not about words.
    assert ("journalctl" in found.remedy) is (not lines or lines == ["gpunode: exit status 7"])


def test_a_process_with_an_open_gpu_is_named_only_where_the_words_are_of_that() -> None:
    (found,) = failure(["nothing", "gpunode: a GPU is open in process 8 (python3)"], "sh")
    assert "python3" not in found.cause


@given(st.lists(st.text(max_size=300) | st.sampled_from(list(LINES)).flatmap(lambda line: st.text().map(line.__add__))))
def test_whatever_is_printed_is_explained_in_one_line_each_and_never_an_error(lines: list[str]) -> None:
    zypper = [*lines, "gpunode: zypper exits 4"]
    for found in (explained(lines), failure(zypper, "sh"), failure([*lines, UNDOING, *lines], "sh")):
        for item in found:
            assert item.cause and item.remedy
            assert len((item.cause + item.remedy).splitlines()) == 1
    assert failure(lines, "sh")
