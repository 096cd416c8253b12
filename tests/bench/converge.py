"""How fast is a run that has nothing to do? `python -m tests.bench.converge --nodes 5 --nodes 20`, as root.

Brings up a lab of its own, converges it, measures, writes docs/performance.md, and takes the lab down.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from gpunode.lab import nodes
from gpunode.lab.errors import LabError
from tests.bench import contenders, page, report
from tests.bench.page import say


def measure(count: int, rounds: int, before: Path | None, ansible_nodes: int) -> report.Result:
    """Return the figures for `count` nodes: all contenders in turns, after one turn that does not count."""
    every = nodes.up(contenders.LAB, count, "h100-80gb", 2, say)
    converge = contenders.converge()
    say(f"{count} nodes converged in {converge:.1f} s")
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="gpunode-bench-") as folder:
        contenders.prepare(every, Path(folder), ansible_nodes)
        found = contenders.contenders(every, Path(folder), before, ansible_nodes)
        sessions = {each.name: _sessions(each.run, every) for each in found}
        seconds: dict[str, list[float]] = {each.name: [] for each in found}
        for turn in range(1, rounds + 1):
            for each in found:
                started = time.monotonic()
                each.run()
                seconds[each.name].append(time.monotonic() - started)
            say(f"turn {turn}: " + ", ".join(f"{name} {taken[-1]:.2f}" for name, taken in seconds.items()))
    reference = statistics.median(seconds[report.REFERENCE])
    figures = tuple(
        report.Figure(
            name=each.name,
            meaning=each.meaning,
            seconds=tuple(round(taken, 3) for taken in seconds[each.name]),
            median=round(statistics.median(seconds[each.name]), 3),
            ratio=round(statistics.median(seconds[each.name]) / reference, 2),
            sessions=sessions[each.name],
        )
        for each in found
    )
    return report.Result(count, round(converge, 1), figures, (load_before, os.getloadavg()[0]))


def _sessions(run: Callable[[], object], every: tuple[nodes.Node, ...]) -> float:
    earlier = [contenders.sessions(node) for node in every]
    run()
    counted = [contenders.sessions(node) - before for node, before in zip(every, earlier, strict=True)]
    return statistics.median(counted)


@click.command()
@click.option("--nodes", "counts", type=click.IntRange(1, 200), multiple=True, default=(5,), show_default=True)
@click.option("--rounds", type=click.IntRange(3), default=3, show_default=True, help="Runs of each contender.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON too.")
@click.option("--before", type=click.Path(exists=True, path_type=Path), help="Another checkout to measure beside this.")
@click.option(
    "--ansible-nodes",
    type=click.IntRange(0, contenders.ANSIBLE_NODES),
    default=contenders.ANSIBLE_NODES,
    show_default=True,
    help="The most nodes that ansible is measured on: it takes minutes.",
)
@click.option("--keep", is_flag=True, help="Leave the lab up, and docs/performance.md as it is.")
def main(
    counts: tuple[int, ...], rounds: int, as_json: bool, before: Path | None, ansible_nodes: int, keep: bool
) -> None:
    """Measure the no-change run and the dry run against fixed work, stock pyinfra and ansible."""
    results: list[report.Result] = []
    problem = ""
    try:
        for count in sorted(set(counts)):
            results.append(measure(count, rounds, before, ansible_nodes))
    except (LabError, contenders.BenchError) as error:
        problem = str(error)
    finally:
        if not keep:
            nodes.down(contenders.LAB, say)
    if results:
        # What was measured before something failed stands.
        text = report.as_markdown(tuple(results), rounds)
        if not keep:
            page.put("a run that has nothing to do", text)
        click.echo(json.dumps(report.as_json(tuple(results), rounds), indent=2) if as_json else text)
    if problem:
        raise click.ClickException(problem)


if __name__ == "__main__":
    sys.exit(main())
