"""What apt, dpkg and zypper print when they fail, as cause and remedy. The lines are apt 2.6's and dpkg 1.21's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import explanations
from gpunode.packages import apt_errors
from gpunode.packages.families import zypper_errors
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

SAID: dict[str, list[dict[str, Any]]] = yaml.safe_load(
    (Path(__file__).parent / "data/explanations.yaml").read_text(encoding="utf-8")
)
LINES = {row["line"]: row.get("kind") for row in SAID["apt"]}
BY_MANAGER = {"apt": apt_errors.explained, "zypper": zypper_errors.explained}


@pytest.mark.parametrize(("manager", "row"), [(manager, row) for manager, rows in SAID.items() for row in rows])
def test_a_line_is_of_its_kind_and_what_it_names_is_told(manager: str, row: dict[str, Any]) -> None:
    found = explanations.explained(manager, [row["line"]])
    assert list(found) == ([row["kind"]] if "kind" in row else [])
    for told in found.values():
        assert unnamed(f"{told.cause}; {told.remedy}", *row["names"]) == []
        assert BY_MANAGER[manager](["x", row["line"], "gpunode: zypper exits 4"]) == (told,)


def test_a_cause_is_told_once_and_what_only_follows_from_it_not_at_all() -> None:
    lines = [line for line, kind in LINES.items() if kind in ("full", "script", "killed")]
    (found,) = apt_errors.explained(lines)
    assert found == explanations.explained("apt", lines)["full"]


def test_several_causes_are_told_in_their_order_and_three_at_most() -> None:
    lines = [next(line for line in LINES if LINES[line] == kind) for kind in ("absent", "lock", "unfetched", "dated")]
    told = explanations.explained("apt", lines)
    assert list(told) == ["absent", "lock", "unfetched"]
    assert apt_errors.explained(lines) == tuple(told.values())


def test_the_same_words_of_dnf_s_are_not_told_as_zypper_s() -> None:
    said = "  - nothing provides dkms needed by kmod-nvidia-open-dkms-3:580.95.05-1.el9.noarch"
    assert zypper_errors.explained([said, "Error: Transaction failed"]) == ()
    # What gpunode itself says of a repository needs no exit code.
    (own,) = (row["line"] for row in SAID["zypper"] if row["line"].startswith("gpunode: signed"))
    assert len(zypper_errors.explained([own])) == 1


@given(st.lists(st.text(max_size=300) | st.sampled_from(list(LINES)).flatmap(lambda line: st.text().map(line.__add__))))
def test_whatever_is_printed_is_explained_in_one_line_each_and_never_an_error(lines: list[str]) -> None:
    for found in (apt_errors.explained(lines), zypper_errors.explained([*lines, "gpunode: zypper exits 4"])):
        assert len(found) <= 3
        for item in found:
            assert item.cause and item.remedy
            assert len((item.cause + item.remedy).splitlines()) == 1
