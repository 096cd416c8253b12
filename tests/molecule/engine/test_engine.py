"""Three nodes by the workers of a Dask cluster, one story from test to test. Real: Dask, pyinfra, ssh, apt, containerd.

SIMULATED: the GPUs, and the distance: scheduler and workers are processes of the machine that the nodes are on. gpu-1
and gpu-2 are of site east, which has two workers, gpu-3 is of site west, which has one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode.fleet.rollout.journal import latest, place
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, Run, command, inventory_with, out, third_tier
from tests.support import dask_cluster
from tests.support.dask_cluster import BINARIES, Cluster, until

ASKED: dict[str, object] = {
    **{name: {"enabled": False} for name in ("driver", "cuda", "toolkit")},
    "containerd": {"default_runtime": "runc"},
}
SITES = {"gpu-1": "east", "gpu-2": "east", "gpu-3": "west"}
# What a run leaves on a node, whatever becomes of it.
TOUCHED = "dpkg-query -W containerd 2>/dev/null; ls /var/lib/gpunode /etc/containerd 2>/dev/null; true"
SECONDS = 300


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return an inventory of the nodes and their sites; what its runs leave here is taken away at the end."""
    data = {name: {**ASKED, "engine": {"site": site}} for name, site in SITES.items()}
    path = inventory_with(tmp_path_factory.mktemp("engine"), data)
    yield path
    shutil.rmtree(CHECKOUT / place(path), ignore_errors=True)
    shutil.rmtree(CHECKOUT / place(path, Path(".run")), ignore_errors=True)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with dask_cluster.cluster(tmp_path, "east", "east", "west") as found:
        yield found


def logins(node: Node) -> int:
    return int(out(node, "journalctl -u ssh.service -o cat | grep -c 'Accepted publickey'; true"))


def began(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BINARIES / "gpunode", *words], cwd=CHECKOUT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> Run:
    printed, said = process.communicate(timeout=SECONDS)
    return Run(process.returncode, printed, said)


def at_work(cluster: Cluster) -> list[int]:
    """Return the workers that have a child."""
    return [
        number
        for number, worker in enumerate(cluster.workers)
        if worker.poll() is None
        and any(
            path.read_text().strip() for path in Path(f"/proc/{worker.pid}/task").glob("*/children") if path.exists()
        )
    ]


def classes(run: Run) -> dict[str, str]:
    hosts: dict[str, Any] = json.loads(run.stdout)["hosts"]
    return {name: host["class"] for name, host in hosts.items()}


def test_drift_and_plan_by_workers_are_those_of_this_machine(cluster: Cluster, inventory: str) -> None:
    here, there = (command("gpunode", "drift", "--json", *engine, inventory) for engine in ((), by(cluster)))
    assert there.findings == here.findings
    assert there.code == here.code == 2, there.printed
    assert at_work(cluster) == []
    plans = [command("gpunode", "plan", "--json", *engine, inventory) for engine in ((), by(cluster))]
    assert plans[0].payload["hosts"] == plans[1].payload["hosts"]


def by(cluster: Cluster) -> tuple[str, str]:
    return "--engine", cluster.engine


def test_a_worker_killed_in_the_middle_of_a_drift_loses_nothing(
    cluster: Cluster, inventory: str, nodes: tuple[Node, ...]
) -> None:
    before = logins(nodes[0])
    drift = began("drift", "--json", *by(cluster), inventory)
    # Of site east: its worker's child is there, and has come as far as the first node.
    until(lambda: drift.poll() is not None or logins(nodes[0]) > before, cluster, SECONDS)
    killed = [number for number in at_work(cluster) if number < 2]
    assert len(killed) == 1, (killed, ended(drift).printed)
    cluster.workers[killed[0]].kill()
    run = ended(drift)
    assert run.code == 2, run.printed
    assert classes(run) == dict.fromkeys(SITES, "drift")
    # The other one has read the site's nodes anew.
    assert logins(nodes[0]) >= before + 2


def test_a_worker_killed_in_the_middle_of_an_apply_is_told_and_nothing_is_begun_twice(
    cluster: Cluster, inventory: str, nodes: tuple[Node, ...]
) -> None:
    apply = began("apply", "--yes", "--output", "json", *by(cluster), inventory)
    until(lambda: apply.poll() is not None or out(nodes[0], TOUCHED) != "", cluster, SECONDS)
    killed = [number for number in at_work(cluster) if number < 2]
    assert len(killed) == 1, (killed, ended(apply).printed)
    cluster.workers[killed[0]].kill()
    run = ended(apply)
    assert run.code == 1, run.printed
    # The part of the other site is done, and whoever is left of this one has looked how its nodes are.
    assert classes(run)["gpu-3"] == "ok", run.printed
    for name in ("gpu-1", "gpu-2"):
        codes = [finding["code"] for finding in run.findings[name]]
        assert "run.broken-off" in codes and len(codes) > 1, run.printed
        (cut,) = [finding for finding in run.findings[name] if finding["code"] == "run.broken-off"]
        assert "was lost" in cut["cause"]
    assert "looking again, by other workers" in run.stderr


def test_the_nodes_are_whole_and_another_apply_ends_what_was_begun(
    cluster: Cluster, inventory: str, nodes: tuple[Node, ...]
) -> None:
    for node in nodes[:2]:
        assert out(node, "dpkg --audit") == ""
    run = command("gpunode", "apply", "--yes", "--output", "json", *by(cluster), inventory)
    assert run.code == 0, run.printed
    assert classes(run) == dict.fromkeys(SITES, "ok")
    assert command("gpunode", "drift", *by(cluster), inventory).code == 0


@third_tier
def test_the_scheduler_killed_in_a_rollout_is_told_and_resume_goes_on(
    cluster: Cluster, inventory: str, nodes: tuple[Node, ...]
) -> None:
    for node in nodes:
        out(node, "systemctl stop containerd")
    rollout = began("rollout", "--json", *by(cluster), inventory)
    # The canary's run is over when its service is there again, and then it is read by a worker.
    until(
        lambda: rollout.poll() is not None or out(nodes[0], "systemctl is-active containerd; true") == "active",
        cluster,
        SECONDS,
    )
    cluster.scheduler.kill()
    run = ended(rollout)
    assert run.code == 1, run.printed
    assert "scheduler" in run.stderr and "--resume" in run.stderr, run.printed
    journal = latest(CHECKOUT / place(inventory))
    assert journal is not None and journal.known.ended is not None and journal.known.ended.how == "interrupted"
    assert out(nodes[2], "systemctl is-active containerd; true") == "inactive"

    run = command("gpunode", "rollout", "--json", "--resume", inventory)
    assert run.code == 0, run.printed
    assert run.payload["state"] == "finished"
    assert [out(node, "systemctl is-active containerd; true") for node in nodes] == ["active"] * 3
