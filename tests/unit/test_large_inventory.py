"""Large inventories are read as pyinfra reads them, in less time; a part of one makes hosts of that part alone."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet import inventory
from gpunode.fleet.engine.parts import Expected
from gpunode.fleet.inventory import Hosts, load_inventory
from gpunode.settings import check_hosts
from gpunode.settings.hosts import data_of

pytestmark = pytest.mark.pure

INVENTORY = """
east = [("gpu-1", {"ssh_port": 1}), "gpu-2", "gpu-3"]
west = (["gpu-3", "gpu-4", "gpu-4"], {"x_place": "west"})
"""
GROUP = "driver = {'branch': '570'}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "fleet.py"
    found.write_text(INVENTORY)
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "east.py").write_text(GROUP)
    return found


def read(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    """Return the hosts' data, and each group's hosts."""
    found = load_inventory(path)
    groups = {str(name): [host.name for host in hosts] for name, hosts in found.groups.items()}
    return {host.name: data_of(host).data for host in found}, groups


def test_it_is_what_pyinfra_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = read(path)
    monkeypatch.setattr(inventory, "quick", lambda only=None: nullcontext())
    assert read(path) == ours
    assert ours[1]["east"] == ["gpu-1", "gpu-2", "gpu-3"] and ours[1]["west"] == ["gpu-3", "gpu-4"]


def test_a_part_has_its_own_hosts_with_all_their_data(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = read(path)
    ((name, value),) = Expected("1", "", 1, ("gpu-1", "gpu-4")).environment().items()
    monkeypatch.setenv(name, value)
    part, groups = read(path)
    assert part == {host: whole[host] for host in ("gpu-1", "gpu-4")}
    assert part["gpu-1"]["driver"] == {"branch": "570"}
    assert groups["east"] == ["gpu-1"] and groups["west"] == ["gpu-4"]
    ((name, value),) = Expected("1", "", 1, None).environment().items()
    monkeypatch.setenv(name, value)
    assert read(path)[0] == whole


@given(st.lists(st.integers(0, 5)))
def test_a_list_knows_what_it_holds(numbers: list[int]) -> None:
    objects, found, plain = [object() for _ in range(6)], Hosts(), list[object]()
    for number in numbers:
        for each in (found, plain):
            if objects[number] not in each:
                each.append(objects[number])
    assert list(found) == plain
    assert [each in found for each in objects] == [each in plain for each in objects]


def test_no_group_is_searched_host_by_host(path: Path) -> None:
    # What that saves is in docs/scale.md (tests/bench/fleet.py).
    assert {type(hosts) for hosts in load_inventory(path).groups.values()} == {Hosts}


def test_hosts_with_the_same_settings_are_judged_once_and_others_by_themselves() -> None:
    same = {"driver": {"branch": "570"}}
    hosts: dict[str, dict[str, Any]] = {
        "a": {**same, "ssh_hostname": "1"}, "b": {**same, "ssh_hostname": "2"},
        "c": {"driver": {"branch": "580"}}, "d": {},
    }  # fmt: skip
    found = check_hosts(hosts, frozenset({"ssh_hostname"}))
    assert found["a"] is found["b"]
    assert [each.driver.branch for each in found.values()][:3] == ["570", "570", "580"]
    assert found["d"].driver.branch != "570"
