"""What a run that has nothing to do costs, as a part of docs/performance.md."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from tests.bench import aims
from tests.bench.page import machine, taken_on

# What every contender is compared with.
REFERENCE = "fixed work"
# What of the aims is about runs that have nothing to do; the others are tests/bench/drift.py's.
AIMS = tuple(aim for aim in aims.AIMS if aim.way == "no-change run")


@dataclass(frozen=True)
class Figure:
    """Hold one contender's seconds (all runs and their median), and its SSH sessions per node in one run."""

    name: str
    meaning: str
    seconds: tuple[float, ...]
    median: float
    ratio: float
    sessions: float


@dataclass(frozen=True)
class Result:
    """Hold one number of nodes: seconds of the run that converged them, contenders' figures, load before and after."""

    nodes: int
    converge: float
    figures: tuple[Figure, ...]
    load: tuple[float, float]

    @property
    def medians(self) -> dict[str, float]:
        """Return contender -> median."""
        return {figure.name: figure.median for figure in self.figures}


def as_json(results: tuple[Result, ...], rounds: int) -> dict[str, Any]:
    """Return everything measured, as plain JSON types."""
    return {
        "machine": machine(),
        "date": time.strftime("%Y-%m-%d"),
        "rounds": rounds,
        "results": [asdict(result) for result in results],
        "aims": aims.as_json(AIMS, {result.nodes: result.medians for result in results}),
    }


def as_markdown(results: tuple[Result, ...], rounds: int) -> str:
    """Return the part of the page."""
    lines = [
        "## A run that has nothing to do",
        "",
        f"By `tests/bench/converge.py`, on {time.strftime('%Y-%m-%d')}. {taken_on()} On a network what counts is the "
        "last column: each SSH session takes two round trips.",
        "",
        f"Every figure is the median of {rounds} runs, all contenders taken in turns; nodes are converged and nothing "
        "is to be done. What all are compared with is fixed work, which holds nothing of gpunode's.",
        "",
        *aims.as_markdown(AIMS, {result.nodes: result.medians for result in results}),
        "",
    ]
    for result in results:
        noun = "node" if result.nodes == 1 else "nodes"
        lines += [
            f"### {result.nodes} {noun}",
            "",
            f"Load average before {result.load[0]:.1f}, after {result.load[1]:.1f}. The run before, which installs "
            f"what the nodes lack (all of it on new nodes), took {result.converge:.0f} s.",
            "",
            f"| | seconds | × {REFERENCE} | from … to | SSH sessions per node |",
            "|---|---:|---:|---|---:|",
            *(
                f"| {figure.name} | {figure.median:.2f} | {figure.ratio:.2f} | {min(figure.seconds):.2f} … "
                f"{max(figure.seconds):.2f} | {figure.sessions:.0f} |"
                for figure in result.figures
            ),
            "",
        ]
    lines += ["### What is what", ""]
    meanings = {figure.name: figure.meaning for result in results for figure in result.figures}
    lines += [f"- {name}: {meaning}." for name, meaning in meanings.items()]
    lines += [
        "",
        "How it is fast: gpunode/fleet/hooks.py (no Nagle delay, one reading for many operations, operation order "
        "without reading source files) and gpunode/fleet/shared_readings.py, which says why a shared reading is never "
        "an outdated one. "
        "`GPUNODE_HOOKS=off` turns them off.",
        "",
    ]
    return "\n".join(lines)
