"""A program of a finished node prints garbage: that host is left alone and told of, the others are as before.

SIMULATED: GPUs, and the garbage (a file bound over the program); the rest of each node is real.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, converge, report

PROGRAMS = ("nvidia-smi", "modinfo", "dpkg-query", "containerd", "ctr", "nvidia-ctk", "gpg", "systemctl")
KINDS = {
    "is not UTF-8": "printf '\\377\\376=\\200\\n\\300'",
    "is empty": "exit 0",
    "is truncated": "printf 'package=nvid'; kill -9 $$",
    "is another error": "echo 'Unable to determine the device handle: Unknown Error'; exit 255",
}


@dataclass(frozen=True)
class Garbage:
    """Hold a program of a node, what its output is, and the shell text that it becomes; None: a wedged GPU."""

    program: str
    kind: str
    text: str | None

    def put(self, node: Node) -> None:
        """Let the node's program print this."""
        if self.text is None:
            lab_nodes.set_fault(node, hang=True)
            return
        script = shlex.quote(f"#!/bin/sh\n{self.text}\n")
        done = lab_nodes.run(
            node,
            f"printf '%s' {script} > /run/garbage && chmod 755 /run/garbage && "
            f'mount --bind /run/garbage "$(readlink -f "$(command -v {self.program})")"',
        )
        assert done.returncode == 0, done.stderr

    def take(self, node: Node) -> None:
        """Give the node its program back."""
        lab_nodes.clear_faults(node)
        # By mountinfo: the program may be what umount's own helpers call.
        lab_nodes.run(node, "grep ' /garbage /' /proc/self/mountinfo | cut -d' ' -f5 | xargs -r -n 1 umount")


CASES = [
    *(Garbage(program, kind, text) for program in PROGRAMS for kind, text in KINDS.items()),
    Garbage("nvidia-smi", "never comes", None),
]
# By default one kind a program, and the wedged GPU; all with GPUNODE_TEST_ALL=1 (`make test-all`).
if os.environ.get("GPUNODE_TEST_ALL") != "1":
    CASES = [*CASES[: len(PROGRAMS) * len(KINDS) : len(KINDS) + 1], *CASES[-2:]]
# What pyinfra says of every host, and of every failed one.
_NO_CAUSE = ("Connected", "Ready:", "Success", "No changes", "Error: executed", "caution:")


def judge(name: str, run: Run) -> str:
    """Return what the run made of the host whose program printed garbage."""
    acted = [operation for operation, hosts in run.operations("success").items() if name in hosts]
    if acted:
        return f"ACTED: {', '.join(acted)}"
    if name not in run.payload["results"]["failed_hosts"]:
        return "not needed"
    lines = [line.split("]", 1)[1].strip() for line in run.stderr.splitlines() if f"[{name}]" in line]
    said = [line for line in lines if not line.startswith(_NO_CAUSE)]
    return f"reported: {'; '.join(said)[:200]}" if said else f"NO CAUSE: {lines}"


def batches(cases: Sequence[Garbage], size: int) -> list[Sequence[Garbage]]:
    """Return the cases by as many as there are nodes for them."""
    return [cases[start : start + size] for start in range(0, len(cases), size)]


@pytest.mark.node
@pytest.mark.simulated
def test_garbage_stays_on_its_node_and_nothing_acts_on_it(nodes: tuple[Node, ...]) -> None:
    *bad, good = nodes
    first = converge()
    assert first.code == 0, first.printed
    rows = {}
    for batch in batches(CASES, len(bad)):
        pairs = list(zip(bad, batch, strict=False))
        for node, garbage in pairs:
            garbage.put(node)
        try:
            run = converge()
        finally:
            for node, garbage in pairs:
                garbage.take(node)
        assert "Traceback" not in run.printed, run.printed
        assert good.name in run.operations("no_change")["Verify the node"], run.printed
        assert good.name not in run.payload["results"]["failed_hosts"]
        for node, garbage in pairs:
            rows[f"{garbage.program} {garbage.kind}"] = judge(node.name, run)
    table = "\n".join(f"{name} | {verdict}" for name, verdict in rows.items())
    report("garbage.txt").write_text(table + "\n")
    wrong = [name for name, verdict in rows.items() if verdict.startswith(("ACTED", "NO CAUSE"))]
    assert wrong == [], table
    after = converge()
    assert after.code == 0 and after.operations("success") == {}, after.printed
