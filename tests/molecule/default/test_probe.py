"""What it costs a node to be read. Real: sh, systemd, dpkg, containerd. SIMULATED: nvidia-smi, modinfo and nvcc."""

from __future__ import annotations

import shlex
from collections import Counter

from gpunode.base.probe_output import END
from gpunode.facts.node import Node as NodeFact
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import command, converge, report

# What drift asks starts about 45 programs on such a node.
_MOST = 60


def test_a_node_is_read_with_few_programs(nodes: tuple[Node, ...]) -> None:
    node, *_ = nodes
    installed = lab_nodes.run(node, "apt-get install -q -y --no-install-recommends strace", timeout=300)
    assert installed.returncode == 0, installed.stderr
    trace = "/run/gpunode-strace"
    question = shlex.quote(str(NodeFact().command()))
    answer = lab_nodes.run(node, f"strace -f -qq -z -e trace=execve -e signal=none -o {trace} sh -c {question}")
    assert answer.stdout.endswith(f"{END}\n"), answer.stderr
    lines = lab_nodes.run(node, f"cat {trace}; rm {trace}").stdout.splitlines()
    started = Counter(line.partition('execve("')[2].partition('"')[0] for line in lines if line.endswith(" = 0"))
    report("probe.programs").write_text("".join(f"{count} {program}\n" for program, count in started.most_common()))
    assert started["/usr/bin/nvidia-smi"] == 2 and started["/usr/bin/systemctl"] == 1, started
    # The SIMULATED nvidia-smi starts itself as a Python program.
    assert sum(started.values()) - started["/usr/bin/nvidia-smi"] <= _MOST, started


def test_a_run_that_changes_nothing_enters_a_node_three_times_and_a_drift_check_once(nodes: tuple[Node, ...]) -> None:
    """For the readings of preflight and the verdict, for the operations' other readings, and for the node's lock."""
    node, *_ = nodes
    # Not a reload: sshd starts anew then, and refuses connections for a moment. A restart returns once sshd listens.
    told = "printf 'LogLevel VERBOSE\\n' > /etc/ssh/sshd_config.d/90-sessions.conf && systemctl restart ssh"
    assert lab_nodes.run(node, told).returncode == 0
    before = _sessions(node)
    run = converge()
    assert run.code == 0 and run.operations("success") == {}, run.printed
    between = _sessions(node)
    assert command("gpunode", "drift", "--json", "inventories/lab.py").code == 0
    assert (between - before, _sessions(node) - between) == (3, 1)
    lab_nodes.run(node, "rm /etc/ssh/sshd_config.d/90-sessions.conf && systemctl restart ssh")


def _sessions(node: Node) -> int:
    """Return how many commands and file transfers the node's sshd has started since it tells of them."""
    found = lab_nodes.run(node, "journalctl -q -u ssh -o cat --no-pager").stdout.splitlines()
    return sum(line.startswith("Starting session") for line in found)
