"""Real nodes: started, entered, rebooted, made anew and removed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpunode.lab import access, copies, nodes
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node
from gpunode.lab.state import lab_folder, read_json

pytestmark = [
    pytest.mark.real,
    pytest.mark.node,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("podman") is None, reason="needs root and podman"),
]

PREFIX = os.environ.get("GPUNODE_TEST_LABS") or "test"
LAB, OTHER = f"{PREFIX}-nodes", f"{PREFIX}-other"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    nodes.down(LAB)
    try:
        yield nodes.up(LAB, 1, "h100-80gb", 2)[0]
    finally:
        nodes.down(LAB)


def over_ssh(node: Node, command: str, user: str = "root") -> subprocess.CompletedProcess[str]:
    line = [*access.ssh_command(lab_folder(node.lab), node.address, user), command]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30)


def started(node: Node) -> str:
    return over_ssh(node, "systemctl show --property UserspaceTimestampMonotonic --value").stdout.strip()


def test_a_new_node_runs_systemd_without_a_failed_unit(node: Node) -> None:
    assert over_ssh(node, "systemctl is-system-running").stdout == "running\n"
    assert over_ssh(node, "hostname").stdout == "gpu-1\n"


def test_the_operator_becomes_root_without_a_password(node: Node) -> None:
    assert over_ssh(node, "id -un; sudo -n id -un", "operator").stdout == "operator\nroot\n"


def test_another_host_key_is_refused(node: Node) -> None:
    known = lab_folder(LAB) / "known_hosts"
    good = known.read_text()
    other = (lab_folder(LAB) / "id_ed25519.pub").read_text().split()[:2]
    try:
        access.write_known_hosts(known, [(node.address, " ".join(other))])
        refused = over_ssh(node, "true")
    finally:
        known.write_text(good)
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


def test_the_repositories_are_served_inside_the_node(node: Node) -> None:
    served = over_ssh(node, "curl -sSf http://127.0.0.1:8900/keys/gpunode-lab.asc | gpg --show-keys --with-colons")
    fingerprint = str(read_json(lab_folder(LAB) / "nodes.json")["key_fingerprint"])
    assert f"fpr:::::::::{fingerprint}:" in served.stdout, served.stderr


def test_a_node_that_is_up_is_kept(node: Node) -> None:
    before = started(node)
    lines: list[str] = []
    assert nodes.up(LAB, 1, "h100-80gb", 2, lines.append) == (node,)
    assert started(node) == before
    assert any("gpu-1: is up already, kept" in line for line in lines)


def test_a_stopped_node_is_started_again_with_its_files(node: Node) -> None:
    nodes.run(node, "echo kept > /root/kept")
    subprocess.run(["podman", "stop", "--time", "5", node.container], check=True, capture_output=True)
    nodes.up(LAB, 1, "h100-80gb", 2)
    assert over_ssh(node, "cat /root/kept").stdout == "kept\n"


def test_other_gpus_than_the_node_has_are_refused_and_the_remedy_named(node: Node) -> None:
    with pytest.raises(
        LabError, match=rf"gpu-1 of lab {LAB} is up with 2 × h100-80gb and apt, not 1 × t4 and apt: .*--recreate"
    ):
        nodes.up(LAB, 1, "t4", 1)


@pytest.mark.parametrize(
    ("count", "gpu", "gpus", "message"),
    [(0, "t4", 1, "--nodes 0"), (1, "gtx-4", 1, "there are: .*h100-80gb"), (1, "t4", -1, "--gpus -1")],
)
def test_impossible_demands_are_refused_before_anything_starts(count: int, gpu: str, gpus: int, message: str) -> None:
    with pytest.raises(LabError, match=message):
        nodes.up("test-never", count, gpu, gpus)
    assert nodes.nodes("test-never") == ()


def test_an_unknown_node_is_refused_with_the_names_that_there_are(node: Node) -> None:
    with pytest.raises(LabError, match="no node 'gpu-7'; there are: gpu-1"):
        nodes.node(LAB, "gpu-7")


def test_faults_reach_the_node_and_go_away(node: Node) -> None:
    nodes.set_fault(node, hang=True)
    nodes.set_fault(node, lost_gpu=0)
    assert over_ssh(node, "tr -d ' \\n' < /etc/gpunode-lab/faults.json").stdout == '{"hang":true,"lost_gpu":0}'
    nodes.clear_faults(node)
    assert over_ssh(node, "tr -d ' \\n' < /etc/gpunode-lab/faults.json").stdout == "{}"


def test_a_reboot_keeps_files_address_and_host_key(node: Node) -> None:
    before = started(node)
    over_ssh(node, "echo kept > /root/rebooted; systemctl reboot")
    deadline = time.monotonic() + 30
    while started(node) in ("", before) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert started(node) not in ("", before)
    assert over_ssh(node, "cat /root/rebooted").stdout == "kept\n"


def test_a_node_made_anew_has_lost_its_files_but_is_the_same_host(node: Node) -> None:
    nodes.run(node, "echo old > /root/old")
    nodes.set_fault(node, hang=True)
    fresh = nodes.recreate(node, gpus=0)
    assert fresh.address == node.address
    assert over_ssh(fresh, "test -e /root/old || echo gone").stdout == "gone\n"
    assert read_json(fresh.folder / "hardware.json") == {"gpu": "h100-80gb", "count": 0}
    assert read_json(fresh.folder / "faults.json") == {}
    assert nodes.nodes(LAB) == (fresh,)
    nodes.recreate(fresh, gpus=2)


def test_a_copy_has_a_node_s_files_and_a_host_key_of_its_own(node: Node) -> None:
    over_ssh(node, "echo done > /etc/done && systemctl mask tmp.mount")
    try:
        copy = nodes.up(OTHER, 1, "h100-80gb", 2, root=copies.root_of(node))[0]
        asked = "cat /etc/done; systemctl is-enabled tmp.mount; systemctl is-system-running"
        assert over_ssh(copy, asked).stdout == "done\nmasked\nrunning\n"
        keys = [over_ssh(each, "ssh-keyscan -t ed25519 127.0.0.1 2>/dev/null").stdout for each in (copy, node)]
        assert keys[0] and keys[1] and keys[0] != keys[1]
        over_ssh(copy, "echo other > /etc/done")
        assert over_ssh(node, "cat /etc/done").stdout == "done\n"
        # What is made anew is bare: it begins from the image, and not from the copy.
        copy = nodes.recreate(copy)
        assert over_ssh(copy, "test -e /etc/done || echo gone").stdout == "gone\n"
    finally:
        nodes.down(OTHER)
    with pytest.raises(LabError, match=f"gpu-1 of lab {OTHER} is not up"):
        copies.root_of(copy)


def test_one_lab_taken_down_leaves_the_other_alone_and_twice_is_nothing(node: Node) -> None:
    nodes.up(OTHER, 1, "t4", 1)
    lines: list[str] = []
    nodes.down(OTHER, lines.append)
    assert lines == ["gpu-1: removed"]
    assert not lab_folder(OTHER).exists()
    nodes.down(OTHER, lines.append)
    assert lines[-1] == f"lab {OTHER}: nothing to remove"
    assert over_ssh(node, "true").returncode == 0


def test_a_command_goes_on_where_the_node_stops_its_processes_for_a_moment(node: Node) -> None:
    # systemd does so when a node goes down.
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(nodes.run, node, "sleep 1; echo done", 20)
        time.sleep(0.3)
        nodes.run(node, "kill -STOP -1; sleep 0.2; kill -CONT -1")
        assert asked.result().stdout == "done\n"


def test_a_command_that_nobody_waits_for_any_more_ends_in_the_node(node: Node) -> None:
    with pytest.raises(LabError, match="did not end within 1 seconds"):
        nodes.run(node, "exec sleep 4711", timeout=1)
    time.sleep(2)
    assert nodes.run(node, "pgrep -f '[s]leep 4711'").returncode != 0
