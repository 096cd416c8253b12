"""Run the unit tests in as many processes as there are processors: `python -m tests.fast [-m MARKERS] [OPTIONS]`

OPTIONS are pytest's own. Without -m it is `make test-fast`: what needs no node, builds nothing and is not slow, with
few generated examples.
pytest-xdist cannot do this: its workers and pyinfra's gevent do not get along. Each process gets files of its own,
so that together they take about as long as each other by tests/unit/seconds.tsv, with -m by seconds-all.tsv;
`--measure` writes that table anew.
With GPUNODE_TEST_AGAIN=1, as CI has it, tests that failed are run once more, and what they said first is told.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType

from junitparser import Error, Failure, JUnitXml, TestCase

UNIT = Path(__file__).parent / "unit"
SECONDS, SECONDS_OF_ALL = UNIT / "seconds.tsv", UNIT / "seconds-all.tsv"
FAST = "not node and not slow and not builds"
FEW = "25"
# They share one part: their nodes, and what is built for them, come from one place of this machine.
TOGETHER = (
    "lab/test_nodes_live.py", "lab/test_pacman_repository.py", "lab/test_rpm_repository.py", "test_resolve_pacman.py",
)  # fmt: skip
# What a file costs that is not in the table, and each that is beside its tests: pytest imports it.
_OTHERWISE = 0.1
_WORTH_TELLING = 0.2
_NOTHING_COLLECTED = 5
_ENDS_EARLY = re.compile("-x|--exitfirst|--maxfail|--stepwise|--sw")
AGAIN = "GPUNODE_TEST_AGAIN"
# Seconds of one test, many times what the longest takes: whatever hangs is told by name, with where it stood.
_HANGS = 1800
# Many times what the tests' files take; a container's own may be 64 MB.
_ROOM = 4 << 30
_running: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Part:
    """Hold how one process ended: its exit status, what it said, its tests by how they ended, and seconds.

    seconds: of the clock, and of a processor (with all that it started)
    ran, bad: the names of its tests, and of those that failed
    first: what was said the first time, where the tests that failed were run again; empty where none were
    """

    number: int
    status: int
    said: str
    passed: int
    failed: int
    skipped: int
    seconds: tuple[float, float]
    ran: frozenset[str] = frozenset()
    bad: frozenset[str] = frozenset()
    first: str = ""

    @property
    def is_good(self) -> bool:
        return self.failed == 0 and self.status in (0, _NOTHING_COLLECTED)


def seconds_of(table: Path) -> dict[str, float]:
    """Return file -> seconds of a processor, as they were measured; empty where nothing was."""
    rows = [line.split("\t") for line in table.read_text().splitlines()] if table.exists() else []
    return {name: float(seconds) for name, seconds in rows}


def shared_out(files: list[str], seconds: dict[str, float], parts: int) -> list[list[str]]:
    """Return the files of each part: the longest first, each to the part that has least to do."""
    groups = [[file] for file in files if file not in TOGETHER]
    groups += [together] if (together := [file for file in files if file in TOGETHER]) else []
    costs = [(sum(seconds.get(file, 0) + _OTHERWISE for file in group), group) for group in groups]
    found: list[list[str]] = [[] for _ in range(parts)]
    loads = [0.0] * parts
    for cost, group in sorted(costs, key=lambda each: (-each[0], each[1])):
        least = loads.index(min(loads))
        found[least] += group
        loads[least] += cost
    return [sorted(each) for each in found]


def run_part(number: int, files: list[str], options: list[str], folder: Path, measured: bool) -> Part:
    """Run pytest on these files to its end, and once more on the tests that failed where they may be run again."""
    measure = ["-p", "tests.measured", "--measure", str(folder / f"{number}.tsv")] if measured else []
    found = _run(number, files, [*measure, *options], folder / str(number))
    # What ended before its last test says nothing of the others, and what is measured is judged as a whole.
    if not found.bad or measured or any(map(_ENDS_EARLY.match, options)) or os.environ.get(AGAIN) != "1":
        return found
    again = _run(number, files, [*options, "--last-failed", "--last-failed-no-failures=none"], folder / str(number))
    if not found.bad <= again.ran:
        return found
    return replace(
        again,
        passed=found.passed + again.passed,
        skipped=found.skipped + again.skipped,
        seconds=(found.seconds[0] + again.seconds[0], found.seconds[1] + again.seconds[1]),
        first=found.said,
    )


def _run(number: int, files: list[str], options: list[str], folder: Path) -> Part:
    """Run pytest once; which tests failed stays in the part's folder."""
    begun, report = time.monotonic(), folder / "report.xml"
    folder.mkdir(exist_ok=True)
    report.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={folder / 'cache'}", f"--junitxml={report}",
         f"--basetemp={folder / 'pytest'}", f"--timeout={_HANGS}", "--timeout-method=thread",
         *options, *(f"tests/unit/{file}" for file in files)],
        cwd=UNIT.parents[1], env={**os.environ, "TMPDIR": str(folder)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    _running.append(process)
    assert process.stdout is not None
    said = process.stdout.read().decode(errors="replace")
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    _running.remove(process)
    took = (time.monotonic() - begun, used.ru_utime + used.ru_stime)
    return Part(number, process.returncode, said, *counts(report, process.returncode), took, *names(report))


def temporary_folder(memory: Path = Path("/dev/shm")) -> str | None:
    """Return where the tests' files are in memory, which takes half the time; None: where such files are otherwise."""
    if not memory.is_dir() or not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return None
    return str(memory) if shutil.disk_usage(memory).free >= _ROOM else None


def counts(report: Path, status: int) -> tuple[int, int, int]:
    """Return how many tests passed, failed and were skipped; a process that ended badly of itself is a failed one."""
    suites = list(JUnitXml.fromfile(str(report))) if report.exists() else []
    failed, skipped = sum(each.failures + each.errors for each in suites), sum(each.skipped for each in suites)
    passed = sum(each.tests for each in suites) - failed - skipped
    if failed == 0 and (status not in (0, _NOTHING_COLLECTED) or not report.exists()):
        failed = 1
    return passed, failed, skipped


def names(report: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of the tests that ran, and of those that failed."""
    cases = [case for suite in (JUnitXml.fromfile(str(report)) if report.exists() else ()) for case in suite]
    bad = [case for case in cases if any(isinstance(each, Failure | Error) for each in case.result)]
    return frozenset(map(_name, cases)), frozenset(map(_name, bad))


def _name(case: TestCase) -> str:
    return f"{case.classname}::{case.name}"


def write_seconds(measured: list[Path], table: Path) -> None:
    """Write what the files took, the longest first, but for those that took next to nothing."""
    took: dict[str, float] = {}
    for path in measured:
        for line in path.read_text().splitlines():
            test, seconds, _ = line.rsplit("\t", 2)
            file = test.partition("::")[0].removeprefix("tests/unit/")
            took[file] = took.get(file, 0) + float(seconds)
    rows = sorted(((seconds, file) for file, seconds in took.items() if seconds >= _WORTH_TELLING), reverse=True)
    table.write_text("".join(f"{file}\t{seconds:.1f}\n" for seconds, file in rows))


def told(part: Part, parts: int) -> str:
    """Return what is said of a part that has ended: of a good one what was skipped, of another all that it said."""
    clock, processor = part.seconds
    head = f"part {part.number} of {parts}: {clock:.0f} s, {processor:.0f} s of a processor"
    words = ["==== failed at first, and were run again; find out why ====", part.first.rstrip()] if part.first else []
    if part.is_good:
        every = f"{part.first}\n{part.said}".splitlines()
        skipped = dict.fromkeys(line for line in every if line.startswith("SKIPPED"))
        return "\n".join([f"{head}: {part.passed} passed", *skipped, *words])
    return "\n".join([*words, f"==== {head}: FAILED (exit status {part.status}) ====", part.said.rstrip()])


def main(arguments: list[str]) -> int:
    """Run all parts side by side, say how each of them ended, and return 0 where all is well."""
    parser = argparse.ArgumentParser(prog="python -m tests.fast", description=__doc__)
    parser.add_argument("-m", dest="markers", help=f"which tests, as pytest's -m takes it; {FAST!r} unless given")
    parser.add_argument("--parts", type=int, default=min(os.cpu_count() or 1, 4), help="how many processes")
    parser.add_argument("--measure", action="store_true", help="write the table of seconds that the parts are made by")
    asked, options = parser.parse_known_args(arguments)
    if asked.markers is None:
        os.environ.setdefault("GPUNODE_TEST_EXAMPLES", FEW)
    files = sorted(str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py"))
    table = SECONDS if asked.markers is None else SECONDS_OF_ALL
    parts = shared_out(files, seconds_of(table), asked.parts)
    signal.signal(signal.SIGTERM, _terminate)
    begun, ended = time.monotonic(), []
    options = ["-m", asked.markers or FAST, *options]
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as name, ThreadPoolExecutor(asked.parts) as pool:
        running = [
            pool.submit(run_part, number, each, options, Path(name), asked.measure)
            for number, each in enumerate(parts, 1)
        ]
        for done in as_completed(running):
            ended.append(done.result())
            if ended[-1].is_good:
                print(told(ended[-1], asked.parts), flush=True)
        if asked.measure:
            write_seconds([Path(name) / f"{number}.tsv" for number in range(1, asked.parts + 1)], table)
    bad = [part for part in ended if not part.is_good]
    for part in bad:
        print(told(part, asked.parts), flush=True)
    passed, failed, skipped = (sum(getattr(part, how) for part in ended) for how in ("passed", "failed", "skipped"))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    clock = f"{time.monotonic() - begun:.0f} s, {used.ru_utime + used.ru_stime:.0f} s of a processor"
    none = passed + failed + skipped == 0
    word = "FAILED" if bad else "FAILED: no test was asked for by these options" if none else "all is well"
    again = sum(bool(part.first) for part in ended)
    twice = f", {again} of them with tests that failed at first" if again else ""
    print(f"unit tests: {asked.parts} parts side by side{twice}, {word}, {clock}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if bad or none else 0


def _terminate(number: int, frame: FrameType | None) -> None:
    """End the parts, which then count as failed ones: they have nodes to take down."""
    for process in _running:
        process.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
