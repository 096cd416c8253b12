"""What do a thousand hosts cost the controller? `tests/bench/controller.py`, as root.

Brings up one lab node, converges it, and records what it answers; then `gpunode drift` asks as many SIMULATED hosts as
told (tests/support/answering.py), by one process and by as many as it takes by itself. Writes its part of
docs/performance.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from gpunode.lab import nodes
from gpunode.lab.errors import LabError
from gpunode.lab.state import CHECKOUT
from tests.bench import contenders, page
from tests.bench.page import say
from tests.support.answering import answering, inventory, recorded


@dataclass(frozen=True)
class Cost:
    """Hold what a check of `hosts` hosts by `processes` processes cost the controller; None: by itself.

    peak_mib: of the largest process
    """

    hosts: int
    processes: int | None
    wall_s: float
    cpu_s: float
    peak_mib: float

    @property
    def cpu_ms_a_host(self) -> float:
        """Processor time for each host."""
        return round(self.cpu_s * 1000 / self.hosts, 2)


def cost(folder: Path, data: dict[str, object], hosts: int, processes: int | None) -> Cost:
    """Ask as many hosts; raise BenchError unless each is as it should be."""
    path = inventory(folder, contenders.LAB, {f"gpu-{number}": data for number in range(hosts)})
    many = [] if processes is None else ["--processes", str(processes)]
    program = [sys.executable, str(Path(sys.executable).parent / "gpunode"), "drift", "--json", *many, str(path)]
    with (folder / "printed").open("wb") as printed:
        started = time.monotonic()
        child = subprocess.Popen(
            program, cwd=CHECKOUT, stdout=printed, stderr=subprocess.STDOUT
        )  # fmt: skip
        _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        said = (folder / "printed").read_text(encoding="utf-8")
        raise contenders.BenchError(f"drift of {hosts} hosts ended with exit code {child.returncode}:\n{_bad(said)}")
    return Cost(hosts, processes, round(wall, 2), round(used.ru_utime + used.ru_stime, 2), round(used.ru_maxrss / 1024))


def _bad(printed: str) -> str:
    """Return what drift's JSON says of the hosts that were not as desired; else the end of what was printed."""
    try:
        hosts = json.loads(printed[printed.index("{") :])["hosts"]
    except (ValueError, KeyError):
        return printed[-3000:]
    bad = [f"{name}: {item['what']}: {item['cause']}" for name, host in hosts.items() for item in host["findings"]
           if item["class"] != "ok"]  # fmt: skip
    return "\n".join((f"{len(bad)} findings, of them", *bad[:10]))


def as_markdown(costs: list[Cost]) -> str:
    """Return the part of docs/performance.md."""
    here = page.machine()
    lines = [
        "## What a thousand hosts cost the controller",
        "",
        f"By `tests/bench/controller.py`, on {here['cores']} cores ({here['device']}), with SIMULATED hosts: one SSH "
        "server on this machine, which gives every connection what a lab node answered. Connections and key exchange "
        "are real, and take their share of the seconds; processor time and memory are those of `gpunode drift` alone, "
        "memory those of its largest process.",
        "",
        "| hosts | processes | seconds | processor seconds | ms a host | peak MiB | KiB a host |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for each in costs:
        many = "by itself" if each.processes is None else str(each.processes)
        memory = "" if each.processes is None else f"{each.peak_mib * 1024 / each.hosts:.0f}"
        lines.append(
            f"| {each.hosts} | {many} | {each.wall_s:.1f} | {each.cpu_s:.1f} | {each.cpu_ms_a_host:.1f} "
            f"| {each.peak_mib:.0f} | {memory} |"
        )
    return "\n".join(lines)


@click.command()
@click.option("--hosts", "counts", type=click.IntRange(1), multiple=True, default=(250, 500, 1000), show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--keep", is_flag=True, help="Leave docs/performance.md as it is.")
def main(counts: tuple[int, ...], as_json: bool, keep: bool) -> None:
    """Measure what `gpunode drift` of many SIMULATED hosts costs the controller."""
    try:
        (node,) = nodes.up(contenders.LAB, 1, "h100-80gb", 2, say)
        contenders.converge()
        with tempfile.TemporaryDirectory(prefix="gpunode-bench-") as name:
            folder = Path(name)
            with answering(folder, recorded(node)) as data:
                costs = [cost(folder, data, hosts, many) for hosts in sorted(set(counts)) for many in (1, None)]
    except (LabError, contenders.BenchError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        nodes.down(contenders.LAB, say)
    text = as_markdown(costs)
    if not keep:
        page.put("the controller", text)
    told = {**page.machine(), "costs": [{**asdict(each), "cpu_ms_a_host": each.cpu_ms_a_host} for each in costs]}
    click.echo(json.dumps(told, indent=2) if as_json else text)


if __name__ == "__main__":
    sys.exit(main())
