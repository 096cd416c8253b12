"""`make test-hardware` on the lab's nodes: its comparison works, and nothing simulated comes into its page.

Real: sh, SSH, the probes. SIMULATED: nvidia-smi, whose log and queries are one program's; nvcc compiles nothing.
"""

from __future__ import annotations

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, command

PAGE = CHECKOUT / "docs" / "hardware.md"
# With a log of its own in place of the one that agrees.
_OTHER = """
mv /usr/bin/nvidia-smi /usr/bin/nvidia-smi.kept
cat > /usr/bin/nvidia-smi <<'END'
#!/bin/sh
case "$*" in "-q -x") nvidia-smi.kept "$@" | sed s/81559/81560/;; *) exec nvidia-smi.kept "$@";; esac
END
chmod 755 /usr/bin/nvidia-smi
"""


def test_every_fact_of_the_nodes_agrees_and_a_simulated_gpu_comes_into_no_page(nodes: tuple[Node, ...]) -> None:
    before = PAGE.read_text() if PAGE.exists() else None
    run = command("python", "-m", "tests.hardware", "inventories/lab.py")
    assert run.code == 0, run.printed
    assert run.stdout.count("shows nothing of hardware") == len(nodes)
    assert run.stdout.count("34 of 34 facts agree") == len(nodes) and "differs" not in run.stdout
    assert run.stdout.count("`gpunode drift` before and after: the same") == len(nodes)
    assert (PAGE.read_text() if PAGE.exists() else None) == before


def test_a_log_that_says_otherwise_is_told_with_both_sides(nodes: tuple[Node, ...]) -> None:
    node = nodes[0]
    assert lab_nodes.run(node, _OTHER).returncode == 0
    try:
        run = command("python", "-m", "tests.hardware", "inventories/lab.py")
        assert run.code == 1, run.printed
        assert f"{node.name}: GPU 0: memory in MiB: 81559, not 81560" in run.stderr
    finally:
        lab_nodes.run(node, "mv /usr/bin/nvidia-smi.kept /usr/bin/nvidia-smi")
