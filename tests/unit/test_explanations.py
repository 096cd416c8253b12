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


@given(st.lists(st.text(max_size=300) | st.sampled_from(list(LINES)).flatmap(lambda line: st.text().map(line.__add__))))
def test_whatever_is_printed_is_explained_in_one_line_each_and_never_an_error(lines: list[str]) -> None:
    zypper = [*lines, "gpunode: zypper exits 4"]
    for found in (explained(lines), failure(zypper, "sh"), failure([*lines, UNDOING, *lines], "sh")):
        for item in found:
            assert item.cause and item.remedy
            assert len((item.cause + item.remedy).splitlines()) == 1
    assert failure(lines, "sh")
