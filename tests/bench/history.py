"""What does a history cost? `python -m tests.bench.history`: SIMULATED documents of 10,000 hosts.

Writes a fleet's hours one after another into SQLite and PostgreSQL, asks, and runs `gpunode drift` with and without a
history. Writes its part of docs/performance.md, with the load that it began and ended under.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from gpunode.history.asking import Question, answers, asking, changes
from gpunode.history.place import Place
from gpunode.history.told import told
from gpunode.history.writing import record
from gpunode.lab.state import CHECKOUT
from tests.bench import page
from tests.support import postgresql
from tests.support.history_documents import GOOD, OLD, at, document

HOSTS, DIFFER, ROUNDS = 10_000, 50, 5
_PART = "a history"


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the processor seconds of this process, and the seconds, that something takes."""
    cpu, wall = time.process_time(), time.monotonic()
    work()
    return time.process_time() - cpu, time.monotonic() - wall


def of_hour(hour: int) -> dict[str, object]:
    """Return the document of an hour: in each hour some other hosts are off, and those of the last are good again."""
    off = range((hour // 2) * DIFFER, (hour // 2 + 1) * DIFFER)
    return document(60 * hour, {f"gpu-{number}": OLD if number in off else GOOD for number in range(HOSTS)})


def measure(place: Place) -> dict[str, tuple[float, float]]:
    """Return what each act takes; the hours in turn change nothing, and 100 findings."""
    taken = {"the first report of all hosts": seconds(lambda: record(place, told(of_hour(0)), "fleet"))}
    hours = [(hour, told(of_hour(hour))) for hour in range(1, 2 * ROUNDS + 1)]
    each = {hour: seconds(lambda it=it: record(place, it, "fleet")) for hour, it in hours}  # type: ignore[misc]
    for name, turn in (("one in which nothing changed", 1), (f"one in which {2 * DIFFER} findings did", 0)):
        these = [cost for hour, cost in each.items() if hour % 2 == turn]
        taken[name] = _median(these)

    def ask(question: Question) -> None:
        with asking(place) as connection:
            answers(connection, question)

    def changed() -> None:
        with asking(place) as connection:
            changes(connection, Question("fleet"), at(0), at(10_000))

    taken["asking of one host"] = _median([seconds(lambda: ask(Question("fleet", ("gpu-7",)))) for _ in range(ROUNDS)])
    taken["asking what changed"] = _median([seconds(changed) for _ in range(ROUNDS)])
    return taken


def _median(costs: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(cpu for cpu, _ in costs), statistics.median(wall for _, wall in costs)


def drift(folder: Path, history: str) -> float:
    """Return the processor seconds of `gpunode drift` of one host that is not there."""
    inventory = folder / "fleet.py"
    inventory.write_text("gpu = [('gpu-1', {'ssh_hostname': '127.0.0.1', 'ssh_port': 1, 'ssh_connect_retries': 0})]\n")
    environment = {**os.environ, "GPUNODE_HISTORY": history, "PYTHONPATH": str(CHECKOUT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    costs = []
    for _ in range(ROUNDS + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        program = Path(sys.executable).parent / "gpunode"
        subprocess.run([program, "drift", inventory], env=environment, capture_output=True, check=False, cwd=CHECKOUT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(costs[1:])


@contextmanager
def places(folder: Path) -> Iterator[dict[str, Place]]:
    """Give the histories that there are to be had here."""
    found = {"SQLite": Place(folder / "history.sqlite")}
    if postgresql.programs() is None:
        yield found
        return
    with postgresql.server() as server:
        os.environ["PGPASSFILE"] = str(server.passfile)
        yield {**found, f"PostgreSQL {server.version.split()[0]}": Place(url=server.make("bench"))}


def main() -> int:
    """Measure, and write the part of the page."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with places(folder) as found:
            taken = {kind: measure(place) for kind, place in found.items()}
        size = sum(path.stat().st_size for path in folder.glob("history.sqlite*")) / 1e6
        alone, with_it = drift(folder, "none"), drift(folder, str(folder / "drift.sqlite"))
    kinds = list(taken)
    rows = [
        f"| {act} | " + " | ".join(f"{taken[kind][act][0]:.2f} | {taken[kind][act][1]:.2f}" for kind in kinds) + " |"
        for act in taken[kinds[0]]
    ]
    heads = " | ".join(f"{kind}: processor s | s" for kind in kinds)
    page.put(
        _PART,
        f"## A history of {HOSTS:,} hosts\n\n"
        f"SIMULATED documents of drift, of which each second one brings {DIFFER} findings and ends {DIFFER}. Of a "
        "server the seconds alone count what it does itself; it is on the same machine, and writes no page to its disk "
        "before it answers (fsync off). `python -m tests.bench.history` measures it; medians of five.\n\n"
        f"| | {heads} |\n|---|{'---:|---:|' * len(kinds)}\n" + "\n".join(rows) + "\n\n"
        f"SQLite's file has {size:.1f} MB then. `gpunode drift` of one host takes {with_it / alone:.2f} times the "
        f"processor's time that it takes with `--history none` ({with_it:.2f} and {alone:.2f} s): what speaks with "
        "databases is imported once the host was judged.\n\n"
        f"Taken on {datetime.now(UTC):%Y-%m-%d} on {os.cpu_count()} cores ({page.machine()['device']}); the load "
        f"average was {load:.1f} before and {os.getloadavg()[0]:.1f} after.",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
