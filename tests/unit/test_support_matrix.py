"""The table by system says what was shown of which system; systems.yaml is held against what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.base import tables
from gpunode.lab.families import FAMILIES
from tests import support, support_matrix
from tests.unit import test_resolve_rpm

pytestmark = pytest.mark.pure

TABLE = support_matrix.systems()
REAL = Path(support_matrix.__file__).parent / "real" / "seen.yaml"


def cells(rows: list[support.Shown], table: dict[str, Any], system: str) -> dict[str, str]:
    """Return component -> cell of a system's line."""
    (line,) = (line for line in support_matrix.matrix(rows, table).splitlines() if system in line.split("|")[1])
    found = [cell.strip() for cell in line.split("|")[2:-1]]
    return dict(zip(support_matrix.COLUMNS, found, strict=True))


def test_each_kind_of_what_was_seen_is_told_of_its_system_alone() -> None:
    rows = [
        support.Shown("one", "dnf", "containerd", "real", "test_it"),
        support.Shown("one", "dnf", "containerd", "simulated", "test_it"),
        support.Shown("one", "dnf", "CUDA toolkit", "simulated", "test_it"),
    ]
    table = {
        **TABLE,
        "metadata": {"Debian 13": ["docker"]},
        "hardware": {"Rocky Linux 9": ["containerd"], "Debian 13": ["MPS"]},
    }
    rocky = cells(rows, table, "Rocky Linux 9 (SIMULATED on Debian)")
    assert (rocky["containerd"], rocky["CUDA toolkit"]) == ("fixtures, programs, hardware (a real one)", "fixtures")
    assert cells(rows, table, "Debian 13")["MPS"] == "hardware"
    # By records of the same repository, where nothing better is.
    assert rocky["driver from NVIDIA's repository"] == "resolved"
    assert cells(rows, table, "AlmaLinux 9")["containerd"] == "–"
    assert cells(rows, table, "AlmaLinux 9")["CUDA toolkit"] == "resolved"
    assert cells(rows, table, "Debian 13")["docker"] == "metadata"
    assert set(cells(rows, table, "Arch Linux").values()) == {"–"}


def test_every_system_that_gpunode_provisions_has_a_line_and_each_column_is_a_component() -> None:
    named = [name.strip().removesuffix(" (SIMULATED on Debian)")
             for line in support_matrix.matrix([], TABLE).splitlines()[2:]
             for name in line.split("|")[1].split(",")]  # fmt: skip
    assert sorted(named) == sorted(row.name for row in tables.distributions())
    assert set(support_matrix.COLUMNS) <= set(support.COMPONENTS)


def test_a_family_s_nodes_are_or_say_that_they_are_the_system_that_is_named() -> None:
    assert set(TABLE["families"]) == set(support.FAMILIES)
    for name, family in FAMILIES.items():
        said = dict(line.split("=", 1) for line in family.files.get("etc/os-release", "").splitlines() if "=" in line)
        if said:
            row = tables.distribution(said["ID"].strip('"'), said.get("VERSION_ID", "").strip('"'))
            assert row is not None and TABLE["families"][name] == {"system": row.name, "simulated": True}
    # The base image of the others, and what the scenario apt_distro writes over it.
    assert TABLE["families"]["apt"] == TABLE["families"]["machine"] == {"system": "Debian 12"}
    nodes = Path(support_matrix.__file__).with_name("molecule") / "apt_distro" / "archive_nodes.py"
    assert 'ID=ubuntu\\\\nVERSION_ID="24.04"' in nodes.read_text()
    assert TABLE["families"]["ubuntu"] == {"system": "Ubuntu 24.04", "simulated": True}


def test_what_is_said_to_be_resolved_is_what_the_named_test_resolves() -> None:
    for component, told in TABLE["resolved"].items():
        test = getattr(test_resolve_rpm, told["test"])
        (marked,) = (mark.args[1] for mark in test.pytestmark if mark.name == "parametrize")
        assert set(told["repositories"]) == {repository for _, repository in marked}, component


def test_what_live_lists_resolved_is_said_alike_in_every_table() -> None:
    seen_with = yaml.safe_load(support.SEEN.read_text())
    of_component = {name: kinds["metadata"] for name, kinds in seen_with.items() if "metadata" in kinds}
    assert {system.lower() for system in TABLE["metadata"]} == set(yaml.safe_load(REAL.read_text()))
    for components in TABLE["metadata"].values():
        assert set(components) == set(of_component)
    assert {said.partition(", ")[2] for said in of_component.values()} == {"Debian 12 and 13"}


def test_hardware_is_said_of_a_system_where_it_is_said_of_a_component() -> None:
    seen_with = yaml.safe_load(support.SEEN.read_text())
    said = {component for components in TABLE["hardware"].values() for component in components}
    assert said == {name for name, kinds in seen_with.items() if "hardware" in kinds}
