"""The bench's results as docs/performance.md."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

AIM = 3.0


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


def machine() -> dict[str, Any]:
    """Return what the figures were taken on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def as_json(results: tuple[Result, ...], rounds: int) -> dict[str, Any]:
    """Return everything measured, as plain JSON types."""
    return {"machine": machine(), "rounds": rounds, "results": [asdict(result) for result in results]}


def as_markdown(results: tuple[Result, ...], rounds: int) -> str:
    """Return the page."""
    here = machine()
    lines = [
        "# Performance",
        "",
        "Written by `tests/bench/converge.py`; do not edit.",
        "",
        f"Taken on {here['date']}: {here['cores']} cores ({here['processor']}), {here['memory_gib']} GiB, Linux "
        f"{here['kernel']}, Python {here['python']}. Controller and nodes share this one machine: the nodes are lab "
        "nodes (real systemd, sshd, apt, containerd; SIMULATED GPUs), so that the nodes' own work is in every figure "
        "and the network is next to none. On a network what counts is the last column: each SSH session takes two "
        "round trips.",
        "",
        f"Every figure is the median of {rounds} runs, all contenders taken in turns; nodes are converged and nothing "
        "is to be done. The floor is the least that reading a node takes: one OpenSSH exec per node, all nodes at "
        "once, of the probe that `gpunode drift` reads a node with. The aim is a no-change run within "
        f"{AIM:.0f} times the floor at 20 nodes.",
        "",
    ]
    for result in results:
        noun = "node" if result.nodes == 1 else "nodes"
        lines += [
            f"## {result.nodes} {noun}",
            "",
            f"Load average before {result.load[0]:.1f}, after {result.load[1]:.1f}. The run before, which installs "
            f"what the nodes lack (all of it on new nodes), took {result.converge:.0f} s.",
            "",
            "| | seconds | × floor | from … to | SSH sessions per node |",
            "|---|---:|---:|---|---:|",
            *(
                f"| {figure.name} | {figure.median:.2f} | {figure.ratio:.2f} | {min(figure.seconds):.2f} … "
                f"{max(figure.seconds):.2f} | {figure.sessions:.0f} |"
                for figure in result.figures
            ),
            "",
        ]
    lines += ["## What is what", ""]
    meanings = {figure.name: figure.meaning for result in results for figure in result.figures}
    lines += [f"- {name}: {meaning}." for name, meaning in meanings.items()]
    lines += [
        "",
        "How it is fast: gpunode/hooks.py (no Nagle delay, one reading for many operations, operation order without "
        "reading source files) and gpunode/snapshot.py, which says why a shared reading is never an outdated one. "
        "`GPUNODE_HOOKS=off` turns them off.",
        "",
    ]
    return "\n".join(lines)
