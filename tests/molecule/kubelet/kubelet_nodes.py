"""What several tests share with molecule/kubelet/test_kubelet.py."""

from __future__ import annotations

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node

FILE, STATE = "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/cpu_manager_state"


def out(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout.strip())
