"""Hosts are read by several processes; each host once, and a process that ends early is told of on its hosts alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.engine import local
from gpunode.fleet.engine.parts import LEAST
from tests.support import warm

pytestmark = pytest.mark.pure

# Nothing listens on port 1 of this machine: every connection is refused at once.
INVENTORY = """
import os, sys
print("an inventory may print")
gpu_nodes = [(f"gpu-{{number}}", {{"ssh_hostname": "127.0.0.1", "ssh_port": 1, "ssh_connect_retries": 0}})
             for number in range(7)]
{more}
"""
NAMES = [f"gpu-{number}" for number in range(7)]
IN_A_CHILD = 'if sys.argv[0].endswith("local.py"): '


def drift(folder: Path, processes: int, more: str = "") -> dict[str, Any]:
    """Return host -> its only finding."""
    path = folder / "inventory.py"
    path.write_text(INVENTORY.format(more=more))
    done = warm.run("gpunode", "drift", "--json", "--processes", processes, path)
    assert done.returncode == 1, done.stdout + done.stderr
    hosts = json.loads(done.stdout)["hosts"]
    return {name: host["findings"][0] for name, host in hosts.items() if len(host["findings"]) == 1}


@given(hosts=st.integers(0, 3000), processors=st.integers(1, 128))
def test_each_host_is_in_one_shard_and_no_process_has_few(hosts: int, processors: int) -> None:
    names = [str(number) for number in range(hosts)]
    number = local.count(hosts, processors)
    parts = [names[each::number] for each in range(number)]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert number <= processors
    assert number == 1 or min(map(len, parts)) >= LEAST


def test_several_processes_find_what_one_finds(tmp_path: Path) -> None:
    one = drift(tmp_path, 1)
    assert list(one) == NAMES
    assert {finding["class"] for finding in one.values()} == {"unreachable"}
    assert drift(tmp_path, 3) == one


@pytest.mark.tier2
def test_a_process_that_ends_early_leaves_its_own_hosts_alone_unread(tmp_path: Path) -> None:
    first = f"""
    try:
        os.mkdir({str(tmp_path / "taken by the first")!r})
        os.kill(os.getpid(), 9)
    except FileExistsError:
        pass
"""
    found = drift(tmp_path, 2, IN_A_CHILD + first)
    assert len(found) == 7
    # What the inventory printed is no part of it.
    lost = [name for name, finding in found.items() if finding["cause"].endswith("(signal 9)")]
    assert lost in [NAMES[number::2] for number in range(2)]
    assert all("Unable to connect" in finding["cause"] for name, finding in found.items() if name not in lost), found


@pytest.mark.tier2
@pytest.mark.parametrize(
    "more",
    [
        # Another order in each process, as an inventory that is made of a set has.
        "import random; random.Random(os.getpid()).shuffle(gpu_nodes)",
        # Nothing is there.
        "sys.stdin.read() and gpu_nodes.clear()",
        # More than a pipe holds: paramiko wrote a traceback for each host that failed.
        'sys.stderr.write("x" * 300_000)',
    ],
)
def test_whatever_an_inventory_does_in_a_process_its_hosts_are_read(tmp_path: Path, more: str) -> None:
    found = drift(tmp_path, 2, IN_A_CHILD + more)
    assert list(found) == NAMES
    assert all("Unable to connect" in finding["cause"] for finding in found.values()), found


@pytest.mark.tier2
def test_a_host_that_a_process_does_not_have_is_told_so_and_the_others_are_read(tmp_path: Path) -> None:
    found = drift(tmp_path, 2, IN_A_CHILD + "del gpu_nodes[1:]")
    assert "Unable to connect" in found.pop("gpu-0")["cause"]
    assert list(found) == NAMES[1:]
    assert all("no such host" in finding["cause"] for finding in found.values()), found
