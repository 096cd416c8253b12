"""Some fifty ways to make a converged node stray: each is found by name, alone, and healed by the next run.

Each node strays in one way at a time; five nodes do so together. SIMULATED: GPUs, driver, nvidia-smi, NVIDIA's
packages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import REPORTS, Run, command, converge, inventory_with, report, third_tier
from tests.molecule.deviations.straying import CONFIG, by_service
from tests.molecule.deviations.ways import WAYS, asked, rounds
from tests.molecule.mps.mps_nodes import UNPACK

ROUNDS = rounds()
# Of most components some; make test-all has all of them.
IN_SECOND_TIER = (2, 4, 5, 9)
HEALING = {name for way in WAYS.values() for name in way.repairs}


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an inventory with more settings than the lab's own."""
    folder = tmp_path_factory.mktemp("ways")
    return inventory_with(folder, asked(folder))


def _drift(inventory: str) -> tuple[Run, dict[str, dict[str, str]]]:
    """Return host -> "component: what" -> class, of what is not as desired.

    A state that is not known, and that no setting asks for, has no desired side: a lab's driver prints no parameters.
    """
    run = command("gpunode", "drift", "--json", inventory)
    return run, {
        name: {
            f"{item['component']}: {item['what']}": item["class"]
            for item in items
            if item["class"] != "ok" and item["desired"] is not None
        }
        for name, items in run.findings.items()
    }


def _dry(inventory: str) -> dict[str, set[str]]:
    """Return host -> operations that `--dry` says would change something."""
    run = command("pyinfra", "--dry", "--json", inventory, "deploys/gpu_node.py")
    assert run.code == 0, run.printed
    found: dict[str, set[str]] = {}
    for row in run.payload["plan"]:
        for host in row["hosts_with_change"]:
            found.setdefault(host, set()).add(_name(row))
    return found


def _changed(run: Run) -> dict[str, set[str]]:
    """Return host -> operations that changed something."""
    found: dict[str, set[str]] = {}
    for row in run.payload["results"]["operations"]:
        for host in row["success"]:
            found.setdefault(host, set()).add(_name(row))
    return found


def _name(row: dict[str, Any]) -> str:
    """Return an operation's name; where it has another one on other nodes, the one that heals there."""
    names = [str(name).split(" | ")[-1] for name in row["names"]]
    return next((name for name in names if name in HEALING), names[0])


def test_the_five_nodes_are_what_is_asked(inventory: str, nodes: tuple[Node, ...]) -> None:
    mps = next(node for node in nodes if node.name == "gpu-4")
    assert lab_nodes.run(mps, UNPACK, timeout=180).returncode == 0
    report("deviations.txt")
    run = converge(inventory=inventory)
    assert run.code == 0, run.printed
    drift, found = _drift(inventory)
    assert drift.code == 0, found
    assert _dry(inventory) == {}


@pytest.mark.parametrize(
    "ways",
    [
        pytest.param(ways, id=", ".join(ways.values()), marks=() if number in IN_SECOND_TIER else third_tier)
        for number, ways in enumerate(ROUNDS)
    ],
)
def test_each_way_is_found_by_name_and_class_alone_and_healed_by_the_next_run_as_dry_says(
    ways: dict[str, str], inventory: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    every = {node.name: node for node in nodes}
    for host, name in ways.items():
        done = lab_nodes.run(every[host], f"set -e\n{WAYS[name].harm}")
        assert done.returncode == 0, (name, done.stdout + done.stderr)
    strayed = {host: by_service(start_times(every[host])) for host in ways}
    drift, found = _drift(inventory)
    would = _dry(inventory)
    healing = converge(inventory=inventory)
    did = _changed(healing)
    wrong: dict[str, Any] = {}
    for host, node in every.items():
        way = WAYS.get(ways.get(host, ""))
        after = by_service(start_times(node)) if way else {}
        restarted = {name for name, started in after.items() if strayed[host].get(name) != started}
        told = {
            "found": (found[host], way.findings if way else {}),
            "dry": (would.get(host, set()), set(way.would_change) if way else set()),
            "did": (did.get(host, set()), set(way.repairs) if way else set()),
            "restarted": (restarted, set(way.restarts) if way else set()),
        }
        wrong |= {f"{ways.get(host, host)}: {what}": pair for what, pair in told.items() if pair[0] != pair[1]}
    with (REPORTS / "deviations.txt").open("a") as told_at_length:
        told_at_length.write("".join(f"{way}: {drift.code}, {would.get(host)}\n" for host, way in ways.items()))
        told_at_length.write(
            "".join(f"WRONG {what}\n  is {pair[0]}\n  should be {pair[1]}\n" for what, pair in wrong.items())
        )
    assert wrong == {}, "is, and should be"
    assert drift.code == 2
    assert (healing.code, healing.operations("error")) == (0, {}), healing.printed
    assert _drift(inventory)[0].code == 0


def test_a_hand_s_comment_survives_the_repair_of_its_line(nodes: tuple[Node, ...]) -> None:
    way = "containerd: another default runtime, taken up"
    (host,) = (host for ways in ROUNDS for host, name in ways.items() if name == way)
    (node,) = (node for node in nodes if node.name == host)
    assert 'default_runtime_name = "nvidia"  # by hand' in lab_nodes.run(node, f"cat {CONFIG}").stdout


def test_then_nothing_is_left_to_do(
    inventory: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    before = [start_times(node) for node in nodes]
    assert _dry(inventory) == {}
    run = converge(inventory=inventory)
    assert (run.code, run.operations("success")) == (0, {}), run.printed
    assert [start_times(node) for node in nodes] == before
