"""One node with Slurm. Real: slurmctld, slurmd and munge of Debian bookworm (22.05), and jobs. SIMULATED: the GPUs.
 No job uses a GPU: it is
told which it may use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, bad, inventory_with, out, run_to, write

pytestmark = [pytest.mark.simulated, pytest.mark.life]
FOLDER = "/etc/slurm"
GRES, NODES = f"{FOLDER}/gpunode-gres.conf", f"{FOLDER}/gpunode-nodes.conf"
NAME = "Tell Slurm of the GPUs"
# The site's own files; the controller is on the node itself. A lab node has no cgroups of its own for Slurm to make.
SITE = """ClusterName=lab
SlurmctldHost={node}
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
ReturnToService=2
NodeName=DEFAULT CPUs=2
{line}
PartitionName=all Nodes=ALL Default=YES
"""
INSTALL = """set -e
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d; chmod 755 /usr/sbin/policy-rc.d
DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends slurmd slurmctld slurm-client munge
rm /usr/sbin/policy-rc.d; mkdir -p /var/spool/slurmd /var/spool/slurmctld
echo 'CgroupPlugin=cgroup/v1' > /etc/slurm/cgroup.conf
systemctl restart munge
"""


def _inventory(folder: Path, node: Node, allow: str = "restart", **slurm: object) -> str:
    data: dict[str, object] = {"slurm": {"enabled": True, **slurm}, "disruption": {"allow": allow}}
    return inventory_with(folder, {node.name: data})


def _run(folder: Path, node: Node, code: int = 0, **settings: Any) -> Run:
    return run_to(code, _inventory(folder, node, **settings))


def _bad(folder: Path, node: Node, **settings: Any) -> dict[str, dict[str, Any]]:
    return bad(_inventory(folder, node, **settings), node.name)


def _until(node: Node, holds: str) -> None:
    out(node, f"for _ in $(seq 60); do {holds} && exit 0; sleep 0.5; done; ps -ef; scontrol show node; exit 1")


def _ended(node: Node) -> None:
    # srun returns before its step's process has gone, and a change waits for that one, too.
    _until(node, "! pgrep -f '^slurmstepd: [[]' > /dev/null")


def _job(node: Node, *options: str) -> dict[str, str]:
    printed = out(node, f"timeout 30 srun {' '.join(options)} env")
    _ended(node)
    return dict(line.split("=", 1) for line in printed.splitlines() if line.startswith(("CUDA_", "SLURM_GPUS")))


def _site(node: Node, line: str) -> None:
    write(node, f"{FOLDER}/slurm.conf", SITE.format(node=out(node, "hostname -s"), line=line))


def test_a_node_without_slurm_is_refused_with_what_to_do(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    refused = _run(tmp_path, node, code=1)
    assert "no slurmd" in refused.printed
    assert _bad(tmp_path, node)["preflight"]["cause"].startswith("there is no")


def test_the_first_run_writes_both_files_and_says_which_line_the_site_adds(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    out(node, INSTALL)
    _site(node, f"NodeName={node.name}")
    out(node, "systemctl restart slurmctld slurmd")
    told = _run(tmp_path, node, code=1)
    assert f"add the line 'include {GRES}' to {FOLDER}/gres.conf" in told.printed
    assert "Name=gpu Type=h100 File=/dev/nvidia[0-1]" in out(node, f"cat {GRES}")
    # The site's own files are as they were.
    assert "include" not in out(node, f"cat {FOLDER}/slurm.conf; ls {FOLDER}")


def test_a_real_job_gets_the_devices_it_asks_for_and_a_second_run_changes_nothing(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    _site(node, f"include {NODES}")
    out(node, f"echo 'include {GRES}' > {FOLDER}/gres.conf")
    assert NAME in _run(tmp_path, node).operations("success")
    assert "Gres=gpu:h100:2" in out(node, f"scontrol -o show node {node.name}")
    assert _job(node, "--gres=gpu:1") == {"CUDA_VISIBLE_DEVICES": "0", "SLURM_GPUS_ON_NODE": "1"}
    assert _job(node, "--gres=gpu:h100:2")["CUDA_VISIBLE_DEVICES"] == "0,1"
    again = _run(tmp_path, node)
    assert again.operations("success") == {}, again.printed
    assert _bad(tmp_path, node) == {}


def test_a_device_that_a_hand_takes_out_and_a_daemon_that_is_down_are_found_and_healed(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    out(node, f"sed -i 's/nvidia.0-1./nvidia0/' {GRES}; systemctl restart slurmd")
    _until(node, f"scontrol -o show node {node.name} | grep -q INVALID_REG")
    assert f"file {GRES}" in _bad(tmp_path, node)
    _run(tmp_path, node)
    assert _bad(tmp_path, node) == {} and "State=IDLE" in out(node, f"scontrol -o show node {node.name}")
    out(node, f"systemctl stop slurmd; rm {NODES}")
    assert {"service slurmd.service", f"file {NODES}"} <= set(_bad(tmp_path, node))
    _run(tmp_path, node)
    assert _bad(tmp_path, node) == {} and _job(node, "--gres=gpu:2")["CUDA_VISIBLE_DEVICES"] == "0,1"


def test_jobs_that_run_keep_their_devices_until_they_end(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, "sbatch -Q --gres=gpu:1 -o /dev/null --wrap 'sleep 600'")
    _until(node, "pgrep -f '^slurmstepd: [[]' > /dev/null")
    waits = _bad(tmp_path, node, type="big")[f"file {GRES}"]
    assert waits["class"] == "restart pending" and "steps of jobs" in waits["cause"]
    _run(tmp_path, node, type="big")
    assert out(node, "squeue -h -o %T") == "RUNNING" and "Type=h100" in out(node, f"cat {GRES}")
    # A slurmd that starts again finds the job.
    out(node, "systemctl stop slurmd")
    assert "service slurmd.service" in _bad(tmp_path, node)
    out(node, "systemctl start slurmd; sleep 2")
    assert out(node, "squeue -h -o %T") == "RUNNING"
    out(node, "scancel -u root")
    _ended(node)
    _run(tmp_path, node, type="big")
    assert _job(node, "--gres=gpu:big:1")["CUDA_VISIBLE_DEVICES"] == "0"


def test_what_slurmd_does_not_take_never_counts(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    assert "built without NVML" in _run(tmp_path, node, code=1, autodetect="nvml").printed
    out(node, "mv /dev/nvidia1 /dev/hidden")
    failed = _run(tmp_path, node, code=1, type="odd")
    assert "slurmd does not" in failed.printed
    out(node, "mv /dev/hidden /dev/nvidia1")
    assert "Type=big" in out(node, f"cat {GRES}") and _job(node, "--gres=gpu:big:1")


def test_the_files_go_when_nothing_includes_them_any_more(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    kept = _bad(tmp_path, node, enabled=False)[f"file {GRES}"]
    assert kept["cause"].startswith(f"{FOLDER}/gres.conf includes it")
    _site(node, f"NodeName={node.name}")
    out(node, f"rm {FOLDER}/gres.conf; systemctl restart slurmctld slurmd")
    _run(tmp_path, node, enabled=False)
    assert "gpunode" not in out(node, f"ls -A {FOLDER}")
    assert _run(tmp_path, node, enabled=False).operations("success") == {}
    assert _bad(tmp_path, node, enabled=False) == {}
