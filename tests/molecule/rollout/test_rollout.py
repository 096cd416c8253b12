"""A rollout over four nodes, one story from test to test. Real: pyinfra, ssh, apt, containerd. SIMULATED: the GPUs.

The nodes are asked for containerd alone, so that a wave takes seconds.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpunode.fleet.rollout.journal import latest, place
from gpunode.fleet.rollout.progress import Progress
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, Run, command, inventory_with, out

ASKED: dict[str, object] = {
    **{name: {"enabled": False} for name in ("driver", "cuda", "toolkit")},
    "containerd": {"default_runtime": "runc"},
}
FAULT = "/etc/apt/apt.conf.d/99lab-fault"
# What a run leaves on a node, whatever becomes of it.
TOUCHED = "dpkg-query -W containerd 2>/dev/null; ls /var/lib/gpunode /etc/containerd 2>/dev/null; true"
SECONDS = 300


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return an inventory of the four nodes; its rollouts are taken away at the end."""
    names = [node.name for node in lab_nodes.nodes(os.environ.get("GPUNODE_LAB", "default"))]
    path = inventory_with(tmp_path_factory.mktemp("rollout"), dict.fromkeys(names, ASKED))
    yield path
    shutil.rmtree(CHECKOUT / place(path), ignore_errors=True)


def logins(node: Node) -> int:
    return int(out(node, "journalctl -u ssh.service -o cat | grep -c 'Accepted publickey'; true"))


def journal(inventory: str) -> Progress:
    found = latest(CHECKOUT / place(inventory))
    assert found is not None
    return found.known


def rollout(*options: str) -> Run:
    return command("gpunode", "rollout", "--json", *options)


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def test_a_dry_rollout_touches_no_node(inventory: str, nodes: tuple[Node, ...]) -> None:
    run = rollout("--dry", "--max-unavailable", "2", inventory)
    assert run.code == 0, run.printed
    waves = [(wave["kind"], wave["nodes"]) for wave in run.payload["to_come"]]
    assert waves == [("canary", ["gpu-1"]), ("wave", ["gpu-2", "gpu-3"]), ("wave", ["gpu-4"])]
    assert [out(node, TOUCHED) for node in nodes] == [""] * 4
    assert not (CHECKOUT / place(inventory)).exists()


def test_the_canary_fails_its_gate_and_no_other_node_is_touched(inventory: str, nodes: tuple[Node, ...]) -> None:
    out(nodes[0], f"echo 'DPkg::Pre-Invoke {{\"false\";}};' > {FAULT}")
    run = rollout("--max-unavailable", "2", "--failure-budget", "4", inventory)
    assert run.code == 2, run.printed
    assert (run.payload["state"], run.payload["untouched"]) == ("stopped", ["gpu-2", "gpu-3", "gpu-4"])
    node = run.payload["waves"][0]["nodes"]["gpu-1"]
    assert node["class"] == "drift" and "containerd" in node["reason"]
    assert "Problem executing scripts DPkg::Pre-Invoke" in (CHECKOUT / run.payload["waves"][0]["log"]).read_text()
    assert [out(node, TOUCHED) for node in nodes[1:]] == [""] * 3


def test_the_controller_killed_in_wave_two_goes_on_and_repeats_no_node_that_was_done(
    inventory: str, nodes: tuple[Node, ...]
) -> None:
    out(nodes[0], f"rm {FAULT}")
    binaries = Path(sys.executable).parent
    controller = subprocess.Popen(
        [binaries / "gpunode", "rollout", "--resume", inventory],
        cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    # The canary has failed as wave 1 and passes as wave 2; what is struck is the first wave behind it, at its work.
    until(
        lambda: controller.poll() is not None or (len(journal(inventory).waves) == 3 and out(nodes[1], TOUCHED) != "")
    )
    controller.send_signal(signal.SIGKILL)
    printed = controller.communicate(timeout=SECONDS)
    assert controller.returncode == -signal.SIGKILL, printed
    killed = journal(inventory)
    assert killed.under_way is not None and killed.under_way.nodes == ("gpu-2", "gpu-3")
    assert killed.passed == ("gpu-1",)

    before = logins(nodes[0])
    run = rollout("--resume", inventory)
    assert run.code == 0, run.printed
    assert run.payload["state"] == "finished"
    assert [(wave["kind"], list(wave["nodes"])) for wave in run.payload["waves"]] == [
        ("canary", ["gpu-1"]), ("canary", ["gpu-1"]), ("wave", ["gpu-2", "gpu-3"]), ("wave", ["gpu-4"]),
    ]  # fmt: skip
    # Neither pyinfra nor the gate came back to the canary.
    assert logins(nodes[0]) == before
    log = (CHECKOUT / run.payload["waves"][2]["log"]).read_text().splitlines()
    limits = [line.split("--limit ")[1:] for line in log if line.startswith("# ")]
    assert len(limits) == 2 and limits[0] == limits[1], "the wave was run twice, on the same nodes"


def test_then_no_node_drifts_and_a_rollout_finds_nothing_to_do(inventory: str) -> None:
    assert command("gpunode", "drift", inventory).code == 0
    run = rollout(inventory)
    assert run.code == 0, run.printed
    assert (run.payload["waves"], len(run.payload["left_out"])) == ([], 4)


def test_a_node_that_does_not_answer_is_told_and_counts_as_unavailable(tmp_path: Path, nodes: tuple[Node, ...]) -> None:
    away = {**ASKED, "ssh_port": 1, "ssh_connect_retries": 0}
    path = inventory_with(tmp_path, {node.name: away if node.name == "gpu-4" else ASKED for node in nodes})
    out(nodes[2], "systemctl stop containerd")
    run = rollout("--dry", path)
    assert run.code == 1, run.printed
    assert {name: left["class"] for name, left in run.payload["left_out"].items()} == {
        "gpu-1": "ok", "gpu-2": "ok", "gpu-4": "unreachable",
    }  # fmt: skip
    assert "would stop" in run.stderr and run.payload["to_come"] == []
    run = rollout("--dry", "--max-unavailable", "2", path)
    assert [wave["nodes"] for wave in run.payload["to_come"]] == [["gpu-3"]]
