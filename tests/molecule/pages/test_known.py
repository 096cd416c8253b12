"""An inventory of Ansible's, made one of pyinfra's: real Ansible and gpunode reach the same nodes by it.

Real: ansible-inventory, Ansible, sshd on the lab's nodes, a node that is reached through another one. SIMULATED: GPUs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, LAB, SECONDS
from tests.support import warm

pytestmark = [pytest.mark.node, pytest.mark.real]

KEYS = CHECKOUT / ".lab" / LAB
# The second node is reached through the first, whose key and known hosts the user's own configuration of ssh names.
HOSTS = """\
[gpu-fleet]
gpu-1 ansible_host={first} ansible_user=root
gpu-2 ansible_host={second} ansible_user=root

[far]
gpu-2 ansible_ssh_common_args='-o ProxyJump=root@{first}'

[gpu-fleet:vars]
ansible_ssh_private_key_file={keys}/id_ed25519
rack_unit=7
"""
SSH = """\
Host {first}
  IdentityFile {keys}/id_ed25519
  UserKnownHostsFile {keys}/known_hosts
"""


@pytest.fixture
def fleet(tmp_path: Path, nodes: tuple[Node, ...]) -> Path:
    """Return the folder of a user who has Ansible's inventory of two nodes."""
    words = {"first": nodes[0].address, "second": nodes[1].address, "keys": KEYS}
    (tmp_path / ".ssh").mkdir(mode=0o700)
    (tmp_path / ".ssh" / "config").write_text(SSH.format(**words))
    (tmp_path / ".ssh" / "known_hosts").write_text((KEYS / "known_hosts").read_text())
    (tmp_path / "hosts.ini").write_text(HOSTS.format(**words))
    return tmp_path


def test_nodes_of_ansible_s_inventory_are_read_by_gpunode_one_of_them_through_the_other(
    fleet: Path, nodes: tuple[Node, ...]
) -> None:
    environment = {**os.environ, "HOME": str(fleet), "NO_COLOR": "1"}
    binaries = Path(sys.executable).parent
    asked = warm.run("gpunode", "facts", "hosts.ini", cwd=fleet, env=environment)
    assert asked.returncode == 1, asked.stderr
    # The command is pasted as it was told.
    command = asked.stderr.split("`")[1]
    assert command == "ansible-inventory -i hosts.ini --list | gpunode init . --from-ansible - --inventory hosts"
    path = {"PATH": f"{binaries}:{os.environ['PATH']}"}
    made = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command], cwd=fleet, env=environment | path, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert "rack_unit: not copied" in made.stdout
    assert "group 'gpu-fleet' is called gpu_fleet here" in made.stdout
    facts = ("gpunode", "facts", "inventories/hosts.py", "--limit")
    read = warm.run(*facts, "gpu_fleet", cwd=fleet, env=environment, timeout=SECONDS)
    assert read.returncode == 0, read.stdout + read.stderr
    assert set(json.loads(read.stdout)["hosts"]) == {"gpu-1", "gpu-2"}
    # It is really the way that is taken: where no host is at its first step, no node is reached.
    way = fleet / "inventories" / "hosts.ssh_config"
    way.write_text(way.read_text().replace(f"ProxyJump root@{nodes[0].address}", "ProxyJump root@127.0.0.1:1"))
    lost = warm.run(*facts, "far", cwd=fleet, env=environment, timeout=SECONDS)
    assert lost.returncode == 1 and "gpu-2: no facts:" in lost.stderr, lost.stdout + lost.stderr
