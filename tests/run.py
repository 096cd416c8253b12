"""Run one tier of the tests: `python -m tests.run {1,2,all} [--unit] [--scenarios NAMES] [PYTEST OPTIONS]`.

Tier 1 is `make test`, tier 2 is what `make test-nodes` adds, `all` is `make test-all`. On two processors three jobs run
at a time: first the unit tests, split by file over as many parts as there are processors, then Molecule's scenarios,
each with a lab of its own. A scenario's log is .reports/scenarios/NAME.log, its tests' output NAME.tests next to it.

pytest-xdist cannot run the unit tests: pyinfra's gevent patches break its workers.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType

import psutil  # type: ignore[import-untyped]
from junitparser import Error, Failure, JUnitXml

TESTS = Path(__file__).parent
UNIT = TESTS / "unit"
SECONDS = UNIT / "seconds.tsv"
REPORTS = TESTS.parent / ".reports" / "scenarios"
PROCESSORS = os.cpu_count() or 1
# Run again what failed, once, and report it as FLAKY if it passes then. Only CI sets this.
AGAIN = "GPUNODE_TEST_AGAIN"
# How the labs' names begin: podman's names are one space, and another checkout may have left its own running.
LABS = "GPUNODE_TEST_LABS"
# These files share one part: they boot nodes under the same name, or build the same repositories.
TOGETHER = (
    "lab/test_nodes_live.py", "lab/test_pacman_repository.py", "lab/test_rpm_repository.py", "test_resolve_pacman.py",
)  # fmt: skip
# The longest scenarios start first, so that none of them runs alone at the end.
LONGEST = (
    "cluster", "interruption", "kubelet", "docker", "dnf", "runfile", "deviations", "engine", "agent", "containerd",
    "first_boot", "hostile",
)  # fmt: skip
# Scenario, or `unit tests` of tier 2 -> groups of Go programs (lab/go) that its tests need.
_TOOLKITS = ("toolkit-1.20.2", "toolkit-1.19.1", "toolkit-1.17.8")
GO_PROGRAMS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("deviations", "podman", "images"), _TOOLKITS), "toolkit": (*_TOOLKITS, "crictl-1.37.0"),
}  # fmt: skip
# Seconds that one test may take before it is reported as hanging.
_HANGS = 1800
# Seconds of processor time to import a test file that has no entry in the table.
_IMPORT = 0.1
_NO_TESTS = 5
_TIMED_OUT = 124
_GO = "gpunode.lab.go_programs"
# Bytes that the tests' temporary files need at most, with room to spare.
_ROOM = 4 << 30


@dataclass(frozen=True)
class Tier:
    """The tests of one make target.

    markers: the unit tests, as pytest's -m takes them
    scenarios: names of Molecule's scenarios
    longest: seconds after which a scenario is stopped
    """

    markers: str
    scenarios: tuple[str, ...]
    longest: int = 1500


def scenarios() -> tuple[str, ...]:
    """Return the names of all scenarios."""
    return tuple(sorted(path.parent.name for path in TESTS.glob("molecule/*/molecule.yml")))


FIRST = ("default", "docker", "mig", "mps")
# The virtual machine takes a quarter of an hour.
THIRD = ("vm",)
TIERS = {
    "1": Tier("not node and not tier2 and not tier3", FIRST),
    "2": Tier("(node or tier2) and not tier3", tuple(name for name in scenarios() if name not in FIRST + THIRD)),
    "all": Tier("", scenarios(), longest=9000),
}


@dataclass
class Result:
    """The outcome of one process: the unit tests of a part, or a scenario.

    text: what to print; a scenario's or part's own output where it failed
    status: exit status of the process
    ran, bad: names of the tests that ran and of those that failed
    """

    name: str
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0
    text: str = ""
    status: int = 0
    ran: frozenset[str] = frozenset()
    bad: frozenset[str] = frozenset()
    files: Counter[str] = field(default_factory=Counter)
    is_flaky: bool = False


class Processes:
    """The running processes, so that a signal ends them in order."""

    def __init__(self) -> None:
        """Start with none."""
        self.ending = threading.Event()
        self._running: set[subprocess.Popen[bytes]] = set()

    def run(self, command: list[str], log: Path, seconds: float, cwd: Path, environment: dict[str, str]) -> int:
        """Run a command with its output in a file; return its exit status, 124 where it took too long."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            self._running.add(process)
            try:
                return process.wait(seconds)
            except subprocess.TimeoutExpired:
                _kill(process)
                process.wait()
                output.write(f"\ndid not end within {seconds:.0f} s\n".encode())
                return _TIMED_OUT
            finally:
                self._running.discard(process)

    def end(self, number: int, frame: FrameType | None) -> None:
        """Start nothing more; end the unit tests and builds, and let scenarios take their nodes down."""
        self.ending.set()
        for process in tuple(self._running):
            if "pytest" in process.args:  # type: ignore[operator]
                process.terminate()
            elif _GO in process.args:  # type: ignore[operator]
                _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()


def split(files: Iterable[str], seconds: dict[str, float], parts: int) -> list[list[str]]:
    """Return the files of each part: the longest first, each to the part with the least to do."""
    groups = [[file] for file in files if file not in TOGETHER]
    groups += [together] if (together := [file for file in files if file in TOGETHER]) else []
    costs = sorted((-sum(seconds.get(file, 0) + _IMPORT for file in group), group) for group in groups)
    shares: list[list[str]] = [[] for _ in range(parts)]
    loads = [0.0] * parts
    for cost, group in costs:
        least = loads.index(min(loads))
        shares[least] += group
        loads[least] -= cost
    return [sorted(share) for share in shares]


def read_report(report: Path, status: int) -> Result:
    """Return what pytest's JUnit report says; a process that ended badly by itself counts as one failed test."""
    suites = list(JUnitXml.fromfile(str(report))) if report.exists() else []
    cases = [case for suite in suites for case in suite]
    failed, skipped = sum(each.failures + each.errors for each in suites), sum(each.skipped for each in suites)
    result = Result("", sum(each.tests for each in suites) - failed - skipped, failed, skipped)
    if failed == 0 and (status not in (0, _NO_TESTS) or not report.exists()):
        result.failed = 1
    result.status = status
    bad = [case for case in cases if any(isinstance(each, Failure | Error) for each in case.result)]
    ran = [case for case in cases if not case.is_skipped]
    result.ran, result.bad = (frozenset(f"{case.classname}::{case.name}" for case in some) for some in (ran, bad))
    for case in cases:
        result.files[str(case.classname).removeprefix("tests.unit.").replace(".", "/") + ".py"] += case.time or 0
    return result


def run_part(number: int, files: list[str], options: list[str], folder: Path, processes: Processes) -> Result:
    """Run pytest on these files, and again on the tests that failed where that is allowed."""
    folder.mkdir(exist_ok=True)
    started, report, log = time.monotonic(), folder / "report.xml", folder / "log"

    def attempt(*more: str) -> Result:
        report.unlink(missing_ok=True)
        command = [
            sys.executable, "-m", "pytest", "-q", "-o", f"cache_dir={folder / 'cache'}", f"--junitxml={report}",
            f"--basetemp={folder / 'pytest'}", f"--timeout={_HANGS}", "--timeout-method=thread", *options, *more,
            *(f"{UNIT.relative_to(TESTS.parent)}/{file}" for file in files),
        ]  # fmt: skip
        status = processes.run(command, log, 2 * _HANGS, TESTS.parent, {**os.environ, "TMPDIR": str(folder)})
        outcome = read_report(report, status)
        outcome.text = log.read_text(errors="replace")
        return outcome

    result = attempt()
    # With another status pytest ended before its last test, so that others have not run.
    if result.status == 1 and result.bad and os.environ.get(AGAIN) == "1" and not processes.ending.is_set():
        again = attempt("--last-failed", "--last-failed-no-failures=none")
        # A test that is not there the second time has not passed.
        if again.failed == 0 and result.bad <= again.ran:
            result.passed, result.failed, result.is_flaky = result.passed + len(result.bad), 0, True
    result.name, result.seconds = f"unit tests, part {number}", time.monotonic() - started
    return result


def run_scenario(name: str, longest: float, processes: Processes) -> Result:
    """Run one scenario to its end, and again where it failed and that is allowed."""
    started, log, tests = time.monotonic(), REPORTS / f"{name}.log", REPORTS / f"{name}.tests"
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "NO_COLOR": "1", "PY_COLORS": "0"}
    command = [str(binaries / "molecule"), "test", "--scenario-name", name]

    def attempt() -> tuple[int, str]:
        tests.unlink(missing_ok=True)
        status = processes.run(command, log, longest - (time.monotonic() - started), TESTS, environment)
        # The tests' own output last: it names what failed, and a job's log is often kept from its end backwards.
        return status, "\n".join(path.read_text(errors="replace")[-12000:] for path in (log, tests) if path.exists())

    status, text = attempt()
    is_flaky = False
    if status not in (0, _TIMED_OUT) and os.environ.get(AGAIN) == "1" and not processes.ending.is_set():
        for path in (log, tests):
            if path.exists():
                path.replace(path.with_suffix(f".first{path.suffix}"))
        status, second = attempt()
        is_flaky, text = status == 0, text if status == 0 else second
    if status == _TIMED_OUT:
        processes.run([*command[:1], "destroy", *command[2:]], log.with_suffix(".destroy"), _HANGS, TESTS, environment)
    good = status == 0
    return Result(name, int(good), int(not good), 0, time.monotonic() - started, text, is_flaky=is_flaky)


def go_groups(tier: str, names: Iterable[str], has_unit_tests: bool) -> list[str]:
    """Return the groups of Go programs that these scenarios need, and the tier's unit tests where they run."""
    users = (*(("unit tests",) if has_unit_tests and tier != "1" else ()), *names)
    return list(dict.fromkeys(group for user in users for group in GO_PROGRAMS.get(user, ())))


def build_programs(groups: Sequence[str], processes: Processes) -> Result:
    """Build groups of Go programs into the lab's cache; a test that needs one waits for it, or fails as it did."""
    started, log = time.monotonic(), REPORTS / "go-programs.log"
    status = processes.run([sys.executable, "-m", _GO, *groups], log, 2 * _HANGS, TESTS.parent, dict(os.environ))
    text = log.read_text(errors="replace")
    return Result("Go programs", int(not status), int(bool(status)), 0, time.monotonic() - started, text)


def temporary_folder(memory: Path = Path("/dev/shm")) -> str | None:
    """Return a folder in memory for temporary files, which halves the tests' time; None where there is none."""
    if not memory.is_dir() or not os.access(memory, os.W_OK) or os.statvfs(memory).f_flag & os.ST_NOEXEC:
        return None
    return str(memory) if shutil.disk_usage(memory).free >= _ROOM else None


def read_seconds(tier: str) -> dict[str, float]:
    """Return file -> seconds from the table; empty where the tier was not measured."""
    rows = [line.split("\t") for line in SECONDS.read_text().splitlines()]
    return {file: float(seconds) for each, file, seconds in rows if each == tier}


def write_seconds(tier: str, results: Iterable[Result]) -> None:
    """Replace the tier's rows of the table, but for files that take almost no time."""
    others = [line for line in SECONDS.read_text().splitlines() if line.partition("\t")[0] != tier]
    taken: Counter[str] = sum((each.files for each in results), Counter())
    rows = [f"{tier}\t{file}\t{seconds:.1f}" for file, seconds in taken.most_common() if seconds >= 0.5]
    SECONDS.write_text("\n".join([*others, *rows]) + "\n")


def report(result: Result, number: int, total: int) -> None:
    """Print one line for a process that ended, and its output where it failed."""
    word = "FAILED" if result.failed else "FLAKY, passed when repeated" if result.is_flaky else "passed"
    counts = f", {result.passed} passed" if result.ran else ""
    print(f"{time.strftime('%H:%M:%S')} {result.name}: {word}, {result.seconds:.0f} s{counts} ({number} of {total})")
    if result.failed or result.is_flaky:
        print(f"==== {result.name} ====\n{result.text.rstrip()}\n==== end of {result.name} ====")
    for line in dict.fromkeys(re.findall(r"^SKIPPED.*", result.text if result.ran else "", re.MULTILINE)):
        print(f"  {line}")
    sys.stdout.flush()


def reasons(text: str) -> list[str]:
    """Return the lines of a failed process's output that name what failed; its last lines where none does."""
    lines = [line for line in text.splitlines() if line.strip()]
    named = [line for line in lines if re.match(r"(FAILED|ERROR|fatal:) ", line)]
    return [line[:1500] for line in (named[-10:] or lines[-10:])]


def run_all(jobs: Sequence[Callable[[], Result]], at_once: int, processes: Processes) -> list[Result]:
    """Run the jobs, at_once of them at a time, and report each as it ends."""
    results: list[Result] = []
    with ThreadPoolExecutor(at_once) as pool:
        waiting = [pool.submit(_unless_ending, job, processes) for job in jobs]
        for done in as_completed(waiting):
            results.append(done.result())
            report(results[-1], len(results), len(jobs))
    return results


def _unless_ending(job: Callable[[], Result], processes: Processes) -> Result:
    return Result("not started", failed=1) if processes.ending.is_set() else job()


def main(arguments: list[str]) -> int:
    """Run one tier, print a table of durations, and return 0 where every test passed."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description=__doc__)
    parser.add_argument("tier", choices=TIERS)
    parser.add_argument("--unit", action="store_true", help="only the unit tests")
    parser.add_argument("--scenarios", metavar="NAMES", help="only these scenarios, separated by spaces; no unit tests")
    parser.add_argument("--parts", type=int, default=min(PROCESSORS, 4), help="processes for the unit tests")
    parser.add_argument("--measure", action="store_true", help="write the seconds by which files are split")
    chosen, options = parser.parse_known_args(arguments)
    tier, processes = TIERS[chosen.tier], Processes()
    names = tier.scenarios if chosen.scenarios is None else tuple(chosen.scenarios.split())
    if unknown := set(names) - set(scenarios()):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are: {' '.join(scenarios())}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, processes.end)
    os.environ.setdefault(LABS, f"test-{hashlib.sha256(str(TESTS).encode()).hexdigest()[:6]}")
    started = time.monotonic()
    jobs: list[Callable[[], Result]] = []
    with tempfile.TemporaryDirectory(dir=temporary_folder()) as folder:
        if chosen.scenarios is None:
            files = sorted(str(path.relative_to(UNIT)) for path in UNIT.rglob("test_*.py"))
            jobs += [
                partial(run_part, number, part, ["-m", tier.markers, *options], Path(folder, str(number)), processes)
                for number, part in enumerate(split(files, read_seconds(chosen.tier), chosen.parts), 1)
            ]
        REPORTS.mkdir(parents=True, exist_ok=True)
        groups = go_groups(chosen.tier, () if chosen.unit else names, chosen.scenarios is None)
        builds = ThreadPoolExecutor(1)
        build = builds.submit(build_programs, groups, processes) if groups else None
        if not chosen.unit:
            order = sorted(names, key=lambda name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), name))
            jobs += [partial(run_scenario, name, tier.longest, processes) for name in order]
        # One more than there are processors: a node that boots is waited for.
        at_once = int(os.environ.get("GPUNODE_TEST_SIDE_BY_SIDE") or PROCESSORS + 1)
        results = run_all(jobs, at_once, processes)
        if build is not None:
            results.append(build.result())
            report(results[-1], len(results), len(jobs) + 1)
    if chosen.measure:
        write_seconds(chosen.tier, [result for result in results if result.files])
    print(f"==== tier {chosen.tier}: {time.monotonic() - started:.0f} s; the longest first ====")
    for each in sorted(results, key=lambda result: -result.seconds):
        print(f"{each.seconds:6.0f} s  {each.name}{': FLAKY' if each.is_flaky else ': FAILED' if each.failed else ''}")
    # After the table: of a job's log often the end alone is kept.
    for each in results:
        for line in reasons(each.text) if each.failed or each.is_flaky else ():
            print(f"{each.name}: {line}")
    passed, failed, skipped = (sum(getattr(each, how) for each in results) for how in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""), flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
