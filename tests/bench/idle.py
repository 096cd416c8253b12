"""What do connections cost in which nothing happens? `python -m tests.bench.idle`: SIMULATED hosts, real SSH.

A run is connected to all its hosts from its first operation to its last, and most of them wait for the others. Two
processes in turns, with gpunode's hooks into pyinfra's connections and without: the rest is the same. Writes its part
of docs/performance.md.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gpunode.lab.state import CHECKOUT
from tests.bench import page
from tests.support.answering import answering

HOSTS, SECONDS, ROUNDS = 500, 10, 3
_PART = "connections in which nothing happens"


def idle(inventory_path: Path) -> float:
    """Return the processor seconds of this process per second of being connected to all hosts of an inventory."""
    import gevent  # type: ignore[import-untyped]

    from gpunode.fleet import nodes
    from gpunode.fleet.inventory import load_inventory

    inventory = load_inventory(inventory_path)
    with nodes.connected(inventory, [host.name for host in inventory]):
        if (missing := sum(not host.connected for host in inventory)) > 0:
            raise RuntimeError(f"{missing} of {len(inventory)} SIMULATED hosts were not reached")
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        gevent.sleep(SECONDS)
        after = resource.getrusage(resource.RUSAGE_SELF)
        taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return taken / (time.monotonic() - began)


def _by_child(inventory: Path, hooks: str) -> float:
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.idle", str(inventory)], cwd=CHECKOUT,
        env={**os.environ, "GPUNODE_HOOKS": hooks}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def as_markdown(without: float, with_hooks: float) -> str:
    """Return the part of the page."""
    here = page.machine()
    return "\n".join(
        [
            "## Connections in which nothing happens",
            "",
            f"By `tests/bench/idle.py`: one process is connected to {HOSTS} SIMULATED hosts (real SSH) for {SECONDS} s "
            "and asks nothing, as a run's nodes wait for the others. Without gpunode's hooks paramiko wakes ten times "
            "a second for each, with them every two seconds.",
            "",
            "| | of a processor | ratio |",
            "|---|---:|---:|",
            f"| pyinfra and paramiko alone (`GPUNODE_HOOKS=off`) | {without:.1%} | 1 |",
            f"| with gpunode's hooks | {with_hooks:.1%} | {with_hooks / without:.2f} |",
            "",
            f"The median of {ROUNDS} rounds in turns, on {here['cores']} cores ({here['device']}).",
        ]
    )


def main(arguments: list[str]) -> None:
    """Measure, or be one of the two processes, which is given an inventory."""
    if arguments:
        print(idle(Path(arguments[0])))
        return
    taken: dict[str, list[float]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory() as name, answering(Path(name), b"nobody asks") as data:
        path = Path(name) / "inventory.py"
        path.write_text(f"gpu_nodes = [(f'gpu-{{number}}', {data!r}) for number in range({HOSTS})]\n")
        for number in range(ROUNDS):
            for hooks in taken:
                page.say(f"round {number + 1} of {ROUNDS}, hooks {hooks}")
                taken[hooks].append(_by_child(path, hooks))
    text = as_markdown(*(statistics.median(each) for each in taken.values()))
    page.put(_PART, text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
