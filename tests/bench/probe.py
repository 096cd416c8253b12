"""What does a reading cost a node, component by component? `tests/bench/probe.py`, as root.

Brings up one lab node, converges it, installs strace in it, and runs each component's probe there, and the whole one.
Writes its part of docs/performance.md.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from gpunode.base.probe import batch_command
from gpunode.facts.node import PARTS
from gpunode.facts.node import Node as NodeFact
from gpunode.lab import nodes
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node
from tests.bench import contenders, page
from tests.bench.page import say

WHOLE = "the whole"
# The folder that a lab node shares with this machine, and what the node calls it.
_FOLDER, _THERE = "bench", "/etc/gpunode-lab/bench"
_ON_NODE = Path(__file__).parent / "on_node.py"


@dataclass(frozen=True)
class Cost:
    """Hold what one probe sends and starts, and the processor time of every run."""

    name: str
    characters: int
    programs: int
    processes: int
    processor_ms: tuple[float, ...]

    @property
    def median_ms(self) -> float:
        """Return the median of its processor time."""
        return round(statistics.median(self.processor_ms), 1)


def commands() -> dict[str, str]:
    """Return the shell command of each component's probe as facts give it to pyinfra, and the one that drift sends."""
    whole = batch_command(NodeFact().command().texts, "0" * 16)
    return {**{name: str(fact().command()) for name, fact in PARTS.items()}, WHOLE: whole}


def measure(node: Node, rounds: int) -> tuple[Cost, ...]:
    """Return the cost of every probe on a converged node; raise BenchError where one cannot be run."""
    installed = nodes.run(
        node, "command -v strace || { apt-get -q update && apt-get -q -y install strace; }", timeout=180
    )
    if installed.returncode:
        raise contenders.BenchError(f"no strace for {node.name}: {installed.stdout}{installed.stderr}")
    # Names are put into files by number: a component's could hold anything.
    asked = commands()
    folder = node.folder / _FOLDER
    folder.mkdir(exist_ok=True)
    try:
        shutil.copyfile(_ON_NODE, folder / "on_node.py")
        for number, command in enumerate(asked.values()):
            (folder / f"{number:03}.sh").write_text(command, encoding="utf-8")
        ran = nodes.run(node, f"python3 {_THERE}/on_node.py {_THERE} {rounds}", timeout=60 + 30 * rounds)
    finally:
        shutil.rmtree(folder)
    if ran.returncode:
        raise contenders.BenchError(
            f"{node.name} ran the probes with exit code {ran.returncode}:\n{ran.stderr[-3000:]}"
        )
    return costs(asked, json.loads(ran.stdout))


def costs(sent: Mapping[str, str], printed: Mapping[str, Any]) -> tuple[Cost, ...]:
    """Return what the node printed, by the probes' names; sent: name -> command."""
    found = []
    for number, (name, command) in enumerate(sent.items()):
        row = printed[f"{number:03}"]
        programs, processes = row["started"]
        found.append(Cost(name, len(command), programs, processes, tuple(row["processor_ms"])))
    return tuple(found)


def as_json(found: tuple[Cost, ...], load: tuple[float, float]) -> dict[str, Any]:
    """Return everything measured, as plain JSON types."""
    return {
        **page.machine(),
        "load": list(load),
        "probes": [
            {
                "name": each.name,
                "characters": each.characters,
                "programs": each.programs,
                "processes": each.processes,
                "processor_ms": each.median_ms,
                "runs_ms": list(each.processor_ms),
            }
            for each in found
        ],
    }


def as_markdown(found: tuple[Cost, ...], load: tuple[float, float]) -> str:
    """Return the part of docs/performance.md; what the parts come to is more than the whole, which asks once."""
    parts = [each for each in found if each.name != WHOLE]
    lines = [
        "## What a reading costs a node",
        "",
        f"By `tests/bench/probe.py`, on one converged lab node. {page.taken_on()} Load before {load[0]:.1f}, after "
        f"{load[1]:.1f}.",
        "",
        "Characters are those of the command that travels to the node; the whole is compressed. Programs and processes "
        "are those that a probe starts, as strace counts them; a process without a program is a part of the shell. "
        "Milliseconds are processor time (user and system, of all of them), the median of "
        f"{len(found[0].processor_ms)} runs, all probes taken in turns.",
        "",
        "| probe | characters | programs | processes | processor ms |",
        "|---|---:|---:|---:|---:|",
        *(
            f"| {each.name} | {each.characters} | {each.programs} | {each.processes} | {each.median_ms:.1f} |"
            for each in parts
        ),
    ]
    programs, processes = sum(each.programs for each in parts), sum(each.processes for each in parts)
    together = sum(each.median_ms for each in parts)
    characters = sum(each.characters for each in parts)
    lines.append(f"| each by itself, together | {characters} | {programs} | {processes} | {together:.1f} |")
    lines += [
        f"| **{each.name}** | {each.characters} | {each.programs} | {each.processes} | {each.median_ms:.1f} |"
        for each in found
        if each.name == WHOLE
    ]
    return "\n".join(lines)


@click.command()
@click.option("--rounds", type=click.IntRange(3), default=9, show_default=True, help="Runs of each probe.")
@click.option("--json", "as_json_", is_flag=True, help="Print the figures as JSON.")
@click.option("--keep", is_flag=True, help="Leave the lab up, and docs/performance.md as it is.")
def main(rounds: int, as_json_: bool, keep: bool) -> None:
    """Measure what each component's probe starts on a node, and how long it computes."""
    try:
        (node,) = nodes.up(contenders.LAB, 1, "h100-80gb", 2, say)
        say(f"{node.name} converged in {contenders.converge():.1f} s")
        before = os.getloadavg()[0]
        found = measure(node, rounds)
        load = (before, os.getloadavg()[0])
    except (LabError, contenders.BenchError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        if not keep:
            nodes.down(contenders.LAB, say)
    text = as_markdown(found, load)
    if not keep:
        page.put("the probe", text)
    click.echo(json.dumps(as_json(found, load), indent=2) if as_json_ else text)


if __name__ == "__main__":
    sys.exit(main())
