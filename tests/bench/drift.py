"""How long does it take to ask whether every node is still so? `tests/bench/drift.py --nodes 20`, as root.

Brings up a lab of its own, converges a node, makes the others as copies of it, measures all ways in turns, writes its
part of docs/performance.md, and takes the lab down.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gpunode.lab import copies, nodes
from gpunode.lab.errors import LabError
from tests.bench import aims, contenders, page
from tests.bench.aims import AIMS
from tests.bench.page import say

# The JSON's name of each way's median.
KEYS = {
    "ssh true": "ssh_true_s", "fixed work": "fixed_work_s", "the probe alone": "probe_s", "drift": "drift_s",
    "no-change run": "no_change_s", "stock dry run": "pyinfra_dry_s", "ansible check": "ansible_check_s",
}  # fmt: skip
# Model and number of each node's simulated GPUs.
_GPUS = ("h100-80gb", 2)
STOCK = "stock dry run"


@dataclass(frozen=True)
class Result:
    """Hold one number of nodes: seconds of every run by way, the ways' meanings, load before and after."""

    nodes: int
    seconds: dict[str, tuple[float, ...]]
    meanings: dict[str, str]
    load: tuple[float, float]

    def median(self, name: str) -> float | None:
        """Return a way's median; None where it was not measured."""
        return round(statistics.median(self.seconds[name]), 3) if name in self.seconds else None

    @property
    def medians(self) -> dict[int, dict[str, float]]:
        """Return nodes -> way -> median, not rounded."""
        return {self.nodes: {name: statistics.median(taken) for name, taken in self.seconds.items()}}

    def as_json(self) -> dict[str, Any]:
        """Return the document: it names what the figures were taken on, and no date."""
        return {
            **page.machine(),
            "nodes": self.nodes,
            **{key: self.median(name) for name, key in KEYS.items()},
            "aims": aims.as_json(AIMS, self.medians),
            "runs_s": {KEYS[name]: list(taken) for name, taken in self.seconds.items()},
            "load": list(self.load),
        }


def converged() -> Path:
    """Bring up the lab's first node, converge it, and return its files: a hundred take an hour on two cores."""
    first = nodes.up(contenders.LAB, 1, *_GPUS, say)[0]
    say(f"{first.name} converged in {contenders.converge():.1f} s; the others are copies of it")
    with tempfile.TemporaryDirectory(prefix="gpunode-bench-") as folder:
        contenders.prepare((first,), Path(folder))
    return copies.root_of(first)


def measure(count: int, rounds: int, ansible_nodes: int, stock_nodes: int, root: Path) -> Result:
    """Return the figures for `count` nodes: all ways in turns, after one turn that does not count.

    + root: a converged node's files
    """
    every = nodes.up(contenders.LAB, count, *_GPUS, say, root=root)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="gpunode-bench-") as folder:
        contenders.prepare(every, Path(folder), ansible_nodes)
        found = tuple(
            each for each in contenders.drift_contenders(every, Path(folder), ansible_nodes)
            if count <= stock_nodes or each.name != STOCK
        )  # fmt: skip
        seconds: dict[str, list[float]] = {each.name: [] for each in found}
        for turn in range(rounds + 1):
            # Each turn begins with another one, so that none always comes right behind the one that loads most.
            first = turn % len(found)
            for each in (*found[first:], *found[:first]):
                started = time.monotonic()
                each.run()
                if turn:
                    seconds[each.name].append(round(time.monotonic() - started, 3))
            if turn:
                say(f"turn {turn}: " + ", ".join(f"{name} {taken[-1]:.2f}" for name, taken in seconds.items()))
    meanings = {each.name: each.meaning for each in found}
    taken = {name: tuple(each) for name, each in seconds.items()}
    return Result(count, taken, meanings, (load, os.getloadavg()[0]))


def as_markdown(results: list[Result], rounds: int) -> str:
    """Return the part of docs/performance.md."""
    lines = [
        "## Is every node still what it should be?",
        "",
        f"By `tests/bench/drift.py`. {page.taken_on()}",
        "",
        f"Every figure is the median of {rounds} runs, in seconds, all ways taken in turns; the nodes are converged: a "
        "run made one of them so, and the others boot from copies of its files. Drift is compared with `ssh true` and "
        "with fixed work, which hold nothing of gpunode's.",
        "",
        f"| nodes | {' | '.join(KEYS)} | load before, after |",
        f"|---:|{'---:|' * len(KEYS)}---|",
    ]
    for each in results:
        cells = [each.median(name) for name in KEYS]
        told = " | ".join("–" if cell is None else f"{cell:.2f}" for cell in cells)
        lines.append(f"| {each.nodes} | {told} | {each.load[0]:.1f}, {each.load[1]:.1f} |")
    medians = {nodes: found for each in results for nodes, found in each.medians.items()}
    lines += ["", "What is aimed at:", "", *aims.as_markdown(AIMS, medians)]
    meanings = {name: meaning for each in results for name, meaning in each.meanings.items()}
    lines += ["", *(f"- {name}: {meaning}." for name, meaning in meanings.items()), ""]
    return "\n".join(lines)


@click.command()
@click.option("--nodes", "counts", type=click.IntRange(1, 200), multiple=True, default=(1,), show_default=True)
@click.option("--rounds", type=click.IntRange(3), default=3, show_default=True, help="Runs of each way.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a document, or a list where --nodes is repeated.")
@click.option(
    "--ansible-nodes",
    type=click.IntRange(0, contenders.ANSIBLE_NODES),
    default=contenders.ANSIBLE_NODES,
    show_default=True,
    help="The most nodes that ansible is measured on: it takes minutes.",
)
@click.option(
    "--stock-nodes",
    type=click.IntRange(0),
    default=200,
    show_default=True,
    help="The most nodes that pyinfra without gpunode's hooks is measured on.",
)
@click.option("--keep", is_flag=True, help="Leave the lab up, and docs/performance.md as it is.")
def main(counts: tuple[int, ...], rounds: int, as_json: bool, ansible_nodes: int, stock_nodes: int, keep: bool) -> None:
    """Measure `gpunode drift` against fixed work, stock pyinfra and ansible."""
    results: list[Result] = []
    problem = ""
    try:
        root = converged()
        for count in sorted(set(counts)):
            results.append(measure(count, rounds, ansible_nodes, stock_nodes, root))
    except (LabError, contenders.BenchError) as error:
        problem = str(error)
    finally:
        if not keep:
            nodes.down(contenders.LAB, say)
    if results:
        # What was measured before something failed stands.
        text = as_markdown(results, rounds)
        if not keep:
            page.put("drift", text)
        documents = [each.as_json() for each in results]
        click.echo(json.dumps(documents[0] if len(counts) == 1 else documents, indent=2) if as_json else text)
    if problem:
        raise click.ClickException(problem)


if __name__ == "__main__":
    sys.exit(main())
