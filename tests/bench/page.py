"""docs/performance.md: each benchmark writes its own part of it, and leaves the others as they are."""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import click

from gpunode.lab.state import CHECKOUT

PAGE = CHECKOUT / "docs" / "performance.md"


def say(line: str) -> None:
    """Say what goes on, with the time, where figures are not printed."""
    click.echo(f"[{time.strftime('%H:%M:%S')}] {line}", err=True)


def put(part: str, text: str, path: Path = PAGE) -> None:
    """Write a benchmark's part; raise ValueError where the page has lost the marks of it."""
    begin, end = f"<!-- {part} -->", f"<!-- end of: {part} -->"
    found = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
    page, times = found.subn(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", path.read_text(encoding="utf-8"))
    if times != 1:
        raise ValueError(f"{path} has lost its marks: {begin} and {end}")
    path.write_text(page, encoding="utf-8")


def taken_on() -> str:
    """Return what every figure was taken on, as a sentence or two."""
    here = machine()
    return (
        f"Taken on {here['cores']} cores ({here['device']}), {here['memory_gib']} GiB, Linux {here['kernel']}, Python "
        f"{here['python']}. Controller and nodes share this one machine: the nodes are lab nodes (real systemd, sshd, "
        "apt, containerd; SIMULATED GPUs), so that the nodes' own work is in every figure and the network is next to "
        "none."
    )


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
        "device": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory),
        # Its version; what else a release's name has is the machine's own affair.
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
    }
