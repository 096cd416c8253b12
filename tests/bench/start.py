"""How long does a command take before it does its work? `tests/bench/start.py`, as root.

Brings up one lab node, converges it, and runs each command a few times, in turns; then `gpunode drift` once more, step
by step (tests/bench/phases.py). Writes its part of docs/performance.md, and takes the lab down.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from gpunode.lab import nodes
from gpunode.lab.errors import LabError
from gpunode.lab.state import CHECKOUT
from tests.bench import contenders, page
from tests.bench.page import say

_PROGRAMS = Path(sys.executable).parent
_INVENTORY = "inventories/lab.py"
COMMANDS: Mapping[str, list[str]] = {
    "python -c pass": ["python", "-c", "pass"],
    "import pyinfra": ["python", "-c", "import pyinfra"],
    "pyinfra --version": ["pyinfra", "--version"],
    "gpunode --help": ["gpunode", "--help"],
    "gpunode check": ["gpunode", "check", _INVENTORY],
    "gpunode drift": ["gpunode", "drift", _INVENTORY],
}
_PHASES = ["python", "-m", "tests.bench.phases", _INVENTORY]
# What is aimed at: processor seconds of the one, seconds of the other on an idle machine.
AIM_HELP, AIM_DRIFT = 0.15, 1.3


@dataclass(frozen=True)
class Cost:
    """Hold what something took: processor seconds (user and system) of this machine's side, and seconds."""

    cpu_s: float
    wall_s: float


def run(words: list[str]) -> tuple[Cost, str]:
    """Return what a command cost, and what it printed; raise BenchError where it failed."""
    environment = {**os.environ, "GPUNODE_LAB": contenders.LAB, "PYTHONPATH": str(CHECKOUT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    started = time.monotonic()
    child = subprocess.Popen(
        [str(_PROGRAMS / words[0]), *words[1:]], cwd=CHECKOUT, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with child:
        assert child.stdout is not None
        printed = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise contenders.BenchError(f"{' '.join(words)} ended with exit code {child.returncode}:\n{printed[-3000:]}")
    return Cost(used.ru_utime + used.ru_stime, wall), printed


def measure(rounds: int) -> tuple[dict[str, Cost], dict[str, Cost]]:
    """Return the median of each command, and of each phase of drift; a first turn does not count."""
    commands: dict[str, list[Cost]] = {name: [] for name in COMMANDS}
    phases: dict[str, list[Cost]] = {}
    for turn in range(rounds + 1):
        for name, words in COMMANDS.items():
            cost, _ = run(words)
            if turn:
                commands[name].append(cost)
        _, printed = run(_PHASES)
        if turn:
            for name, taken in json.loads(printed.splitlines()[-1]).items():
                phases.setdefault(name, []).append(Cost(*taken))
            say(f"turn {turn}: " + ", ".join(f"{name} {each[-1].cpu_s:.2f}" for name, each in commands.items()))
    return _medians(commands), _medians(phases)


def _medians(costs: Mapping[str, list[Cost]]) -> dict[str, Cost]:
    return {
        name: Cost(
            round(statistics.median(cost.cpu_s for cost in each), 3),
            round(statistics.median(cost.wall_s for cost in each), 3),
        )
        for name, each in costs.items()
    }


def as_markdown(commands: Mapping[str, Cost], phases: Mapping[str, Cost], rounds: int, load: float) -> str:
    """Return the part of docs/performance.md."""
    least = commands["python -c pass"]
    whole = commands["gpunode drift"]
    # A program cannot tell when it was started.
    phases = {**phases, "interpreter": Cost(phases["interpreter"].cpu_s, least.wall_s)}
    return "\n".join(
        [
            "## How soon a command begins",
            "",
            f"By `tests/bench/start.py`. {page.taken_on()} The load average was {load:.1f}: where it is above the "
            "number of cores, seconds say more of the others than of the command, and processor seconds less.",
            "",
            f"Every figure is the median of {rounds} runs, with compiled bytecode and files in memory. Processor "
            "seconds are the command's own (user and system), not the node's. Aimed at: "
            f"`gpunode --help` within {AIM_HELP:g} processor seconds, `gpunode drift` of one node within "
            f"{AIM_DRIFT:g} s on an idle machine.",
            "",
            "| command | processor seconds | seconds | × `python -c pass` |",
            "|---|---:|---:|---:|",
            *(
                f"| `{name}` | {cost.cpu_s:.3f} | {cost.wall_s:.2f} | {cost.cpu_s / least.cpu_s:.1f} |"
                for name, cost in commands.items()
            ),
            "",
            "`gpunode drift`, step by step:",
            "",
            "| step | processor seconds | seconds | share of drift's processor seconds |",
            "|---|---:|---:|---:|",
            *(
                f"| {name} | {cost.cpu_s:.3f} | {cost.wall_s:.2f} | {cost.cpu_s / whole.cpu_s:.0%} |"
                for name, cost in phases.items()
            ),
            "",
            "pyinfra's import has paramiko, cryptography, gevent and jinja2 in it. Ours has pydantic and PyYAML, the "
            "probes, their parsers and the judges. The steps are taken apart by tests/bench/phases.py; the "
            "command adds its own line of options and what it prints.",
            "",
        ]
    )


@click.command()
@click.option("--rounds", type=click.IntRange(3), default=7, show_default=True, help="Runs of each command.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--keep", is_flag=True, help="Leave the lab up, and docs/performance.md as it is.")
def main(rounds: int, as_json: bool, keep: bool) -> None:
    """Measure what commands take before they do their work."""
    try:
        nodes.up(contenders.LAB, 1, "h100-80gb", 2, say)
        contenders.converge()
        load = os.getloadavg()[0]
        commands, phases = measure(rounds)
    except (LabError, contenders.BenchError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        if not keep:
            nodes.down(contenders.LAB, say)
    text = as_markdown(commands, phases, rounds, load)
    if not keep:
        page.put("how soon a command begins", text)
    told = {
        **page.machine(),
        "load": load,
        "commands": {name: vars(cost) for name, cost in commands.items()},
        "phases": {name: vars(cost) for name, cost in phases.items()},
    }
    click.echo(json.dumps(told, indent=2) if as_json else text)


if __name__ == "__main__":
    sys.exit(main())
