"""What do ten thousand hosts take, by one worker, two and four? `tests/bench/fleet.py`, as root.

Brings up one lab node, converges it, and records what it answers; then `gpunode drift` reads as many SIMULATED hosts as
told (several SSH servers of tests/support/answering.py) by this machine's own processes, and by the workers of a Dask
cluster on this machine. Writes its part of docs/scale.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import psutil  # type: ignore[import-untyped]

from gpunode.base.probe import batch_command
from gpunode.facts.node import Node as NodeFact
from gpunode.lab import nodes
from gpunode.lab.errors import LabError
from gpunode.lab.state import CHECKOUT
from tests.bench import contenders, page
from tests.bench.page import say
from tests.support import dask_cluster
from tests.support.answering import MARK, answering, inventory, recorded

PAGE = CHECKOUT / "docs" / "scale.md"
_LOOK = 0.2


@dataclass(frozen=True)
class Cost:
    """Hold what a check of `hosts` hosts cost, by `workers` of Dask's (None: by this machine's own processes).

    cpu_s: processor time of gpunode and its workers, of their children, too; peak_mib: of all of them at one moment;
    servers_s: processor time of the SIMULATED hosts meanwhile
    """

    hosts: int
    workers: int | None
    wall_s: float
    cpu_s: float
    peak_mib: float
    servers_s: float

    @property
    def cpu_ms_a_host(self) -> float:
        """Processor time for each host."""
        return round(self.cpu_s * 1000 / self.hosts, 1)

    @property
    def kib_a_host(self) -> float:
        """Memory for each host."""
        return round(self.peak_mib * 1024 / self.hosts)


def _tree(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _spent(process: int) -> float:
    """Return the processor seconds of a process that lives, and of its children that have ended."""
    taken = psutil.Process(process).cpu_times()
    return float(taken.user + taken.system + taken.children_user + taken.children_system)


@contextmanager
def _watched(roots: list[int]) -> Iterator[list[float]]:
    """Give a list whose last item is the most memory (MiB) that these processes had together so far."""
    peak, over = [0.0], threading.Event()

    def look() -> None:
        while not over.wait(_LOOK):
            used = 0
            for root in roots:
                for each in _tree(root):
                    try:
                        used += each.memory_info().rss
                    except psutil.NoSuchProcess:
                        continue
            peak.append(max(peak[-1], used / 2**20))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield peak
    finally:
        over.set()
        looking.join()


def cost(path: Path, folder: Path, hosts: int, cluster: dask_cluster.Cluster | None, servers: list[int]) -> Cost:
    """Read as many hosts; raise BenchError unless each is as it should be."""
    engine = [] if cluster is None else ["--engine", cluster.engine]
    program = [sys.executable, str(Path(sys.executable).parent / "gpunode"), "drift", "--json", *engine, str(path)]
    workers = [] if cluster is None else [each.pid for each in (cluster.scheduler, *cluster.workers)]
    before, answered = sum(map(_spent, workers)), sum(map(_spent, servers))
    with (folder / "printed").open("wb") as printed, (folder / "said").open("wb") as said:
        started = time.monotonic()
        child = subprocess.Popen(program, cwd=CHECKOUT, stdout=printed, stderr=said)
        with _watched([child.pid, *workers]) as peak:
            _, status, used = os.wait4(child.pid, 0)
        wall = time.monotonic() - started
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        words = (folder / "said").read_text(encoding="utf-8")[-2000:]
        raise contenders.BenchError(f"drift of {hosts} hosts ended with {child.returncode}:\n{words}\n{_bad(folder)}")
    cpu = used.ru_utime + used.ru_stime + sum(map(_spent, workers)) - before
    many = None if cluster is None else len(cluster.workers)
    return Cost(
        hosts, many, round(wall, 1), round(cpu, 1), round(peak[-1]), round(sum(map(_spent, servers)) - answered, 1)
    )


def _bad(folder: Path) -> str:
    """Return what drift's JSON says of the first hosts that were not as desired."""
    try:
        hosts = json.loads((folder / "printed").read_text(encoding="utf-8"))["hosts"]
    except (ValueError, KeyError):
        return "it printed no document"
    bad = [f"{name}: {item['what']}: {item['cause']}" for name, host in hosts.items() for item in host["findings"]
           if item["class"] != "ok"]  # fmt: skip
    return "\n".join((f"{len(bad)} findings, of them", *bad[:5]))


def as_markdown(costs: list[Cost], servers: int, sent: int, answered: int) -> str:
    """Return the part of docs/scale.md; sent, answered: bytes of a host's question and answer, before SSH has them."""
    here = page.machine()
    lines = [
        f"By `tests/bench/fleet.py`, on {here['cores']} cores ({here['device']}), with SIMULATED hosts: {servers} SSH "
        "servers on this machine, which give every connection what a lab node answered, after half a second. Hosts, "
        "workers and controller share these cores, so that seconds do not fall with more workers than there are cores "
        "to spare; what each host costs is what counts. Processor time and memory are those of gpunode, Dask's "
        "scheduler and workers, without the hosts. "
        f"A question has {sent / 1024:.0f} KiB, an answer {answered / 1024:.0f} KiB.",
        "",
        "| hosts | read by | seconds | processor ms a host | KiB a host, at the peak | ms of the hosts themselves |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for each in costs:
        by = "this machine's processes" if each.workers is None else f"{each.workers} of Dask's workers"
        lines.append(
            f"| {each.hosts:,} | {by} | {each.wall_s:.0f} | {each.cpu_ms_a_host:.1f} | {each.kib_a_host:.0f} "
            f"| {each.servers_s * 1000 / each.hosts:.1f} |"
        )
    return "\n".join([*lines, "", _linear(costs)])


def _linear(costs: list[Cost]) -> str:
    """Return how far apart the workers' numbers are in what a host costs, of all and of those with a core each."""
    most, cores = max(each.hosts for each in costs), os.cpu_count() or 1
    found = {each.workers: each.cpu_ms_a_host for each in costs if each.workers is not None and each.hosts == most}
    if len(found) < 2:
        return ""
    apart = _apart(list(found.values()))
    told = (
        f"Between the numbers of workers, the processor time of one of {most:,} hosts differs by {apart:.0f} % (aim: "
        f"20 %; {'met' if apart <= 20 else 'not met'})"
    )
    with_a_core = [spent for workers, spent in found.items() if workers <= cores]
    if 1 < len(with_a_core) < len(found):
        told += f"; between those of which each worker has a core, by {_apart(with_a_core):.0f} %"
    return f"{told}."


def _apart(found: list[float]) -> float:
    return (max(found) - min(found)) / min(found) * 100


@click.command()
@click.option("--hosts", "counts", type=click.IntRange(1), multiple=True, default=(10_000,), show_default=True)
@click.option("--workers", "crews", type=click.IntRange(1), multiple=True, default=(1, 2, 4), show_default=True)
@click.option("--servers", type=click.IntRange(1), default=4, show_default=True, help="SSH servers of the hosts.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--keep", is_flag=True, help="Leave docs/scale.md as it is.")
def main(counts: tuple[int, ...], crews: tuple[int, ...], servers: int, as_json: bool, keep: bool) -> None:
    """Measure what `gpunode drift` of many SIMULATED hosts costs, by how many workers."""
    costs: list[Cost] = []
    try:
        (node,) = nodes.up(contenders.LAB, 1, "h100-80gb", 2, say)
        contenders.converge()
        answer = recorded(node)
        with tempfile.TemporaryDirectory(prefix="gpunode-bench-") as name, ExitStack() as stack:
            folders = [Path(name) / str(number) for number in range(servers)]
            for folder in folders:
                folder.mkdir()
            served = [stack.enter_context(answering(folder, answer)) for folder in folders]
            asked = [
                int(each.pid) for each in psutil.Process().children() if "tests.support.answering" in each.cmdline()
            ]
            for hosts in sorted(set(counts)):
                data = {f"gpu-{number}": dict(served[number % servers]) for number in range(hosts)}
                path = inventory(Path(name), contenders.LAB, data)
                say(f"{hosts} hosts by this machine's own processes")
                costs.append(cost(path, Path(name), hosts, None, asked))
                for many in sorted(set(crews)):
                    say(f"{hosts} hosts by {many} workers")
                    with (
                        tempfile.TemporaryDirectory(prefix="gpunode-dask-") as logs,
                        dask_cluster.cluster(Path(logs), *[None] * many) as cluster,
                    ):
                        costs.append(cost(path, Path(name), hosts, cluster, asked))
    except (LabError, contenders.BenchError) as error:
        raise click.ClickException(str(error)) from None
    finally:
        nodes.down(contenders.LAB, say)
    text = as_markdown(costs, servers, len(batch_command(NodeFact().command().texts, MARK)), len(answer))
    if not keep:
        page.put("the figures", text, PAGE)
    told = {**page.machine(), "costs": [{**asdict(each), "cpu_ms_a_host": each.cpu_ms_a_host} for each in costs]}
    click.echo(json.dumps(told, indent=2) if as_json else text)


if __name__ == "__main__":
    sys.exit(main())
