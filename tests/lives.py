"""Run molecule's scenarios side by side, each with a lab of its own: `python -m tests.lives NAME...`

A process of its own: pytest awaits one scenario after the other meanwhile. What a scenario prints goes to
.reports/scenarios/NAME.log, its tests' own words to NAME.tests, and its exit status, once it has ended, to NAME.status
beside them. With GPUNODE_TEST_AGAIN=1, as CI has it, one that failed is run once more; what the first attempt said
stays in NAME.first.log and NAME.first.tests.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

TESTS = Path(__file__).parent
REPORTS = TESTS.parent / ".reports" / "scenarios"
TIMES = TESTS.parent / ".reports" / "scenarios.txt"
# One more than there are processors: a node that boots, and a daemon that is given its time, are waited for.
SIDE_BY_SIDE = int(os.environ.get("GPUNODE_TEST_SIDE_BY_SIDE") or (os.cpu_count() or 1) + 1)
# Above what any of them takes beside others; a scenario that hangs is to end before the job does.
SECONDS = 9000 if os.environ.get("GPUNODE_TEST_ALL") == "1" else 3000
# They begin first, so that none of them is left over, alone, at the end.
LONGEST = ("cluster", "interruption", "runfile", "deviations", "containerd", "dnf", "apt_cuda", "docker", "mig")
# Whether a scenario that failed is run once more: in CI, where it is told, and lets the change be judged by the others.
AGAIN = os.environ.get("GPUNODE_TEST_AGAIN") == "1"
# As timeout(1) has it.
_TIMED_OUT = 124
_ending = threading.Event()


def log_of(scenario: str) -> Path:
    """Return the file with what a scenario printed."""
    return REPORTS / f"{scenario}.log"


def words_of(scenario: str) -> Path:
    """Return the file with what the scenario's tests printed; playbooks/verify.yml writes it."""
    return REPORTS / f"{scenario}.tests"


def first_of(path: Path) -> Path:
    """Return where a file of a first attempt stays that failed; it is there where the scenario was run again."""
    return path.with_suffix(f".first{path.suffix}")


def status_of(scenario: str) -> Path:
    """Return the file with a scenario's exit status, which is there once it has ended."""
    return REPORTS / f"{scenario}.status"


def forget() -> None:
    """Remove what earlier runs left."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    TIMES.unlink(missing_ok=True)
    for old in REPORTS.iterdir():
        old.unlink()


def live(scenario: str) -> None:
    """Run one scenario to its end, again where it failed and may be; leave its exit status, and how long it took."""
    begun = time.monotonic()
    status, times = _attempt(scenario, SECONDS), ""
    if status not in (0, _TIMED_OUT) and AGAIN and not _ending.is_set():
        for path in (log_of(scenario), words_of(scenario)):
            if path.exists():
                path.replace(first_of(path))
        status, times = _attempt(scenario, SECONDS - (time.monotonic() - begun)), " at the second attempt"
    with TIMES.open("a") as noted:
        word = "passed" if status == 0 else "FAILED"
        noted.write(f"{scenario}: {word}{times}, {time.monotonic() - begun:.0f} s\n")
    # Beside itself first: whoever waits reads it as soon as it is there.
    partial = status_of(scenario).with_suffix(".partial")
    partial.write_text(str(status))
    partial.replace(status_of(scenario))


def _attempt(scenario: str, seconds: float) -> int:
    """Run molecule for so long at most, and return its exit status."""
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "NO_COLOR": "1", "PY_COLORS": "0"}
    with log_of(scenario).open("w") as log:
        try:
            return subprocess.run(
                [binaries / "molecule", "test", "--scenario-name", scenario],
                cwd=TESTS, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                timeout=seconds, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            log.write(f"\n{scenario} did not end within {seconds:.0f} s\n")
            return _TIMED_OUT


def taken(times: Path) -> list[str]:
    """Return what TIMES says of each scenario, the one that took longest first."""
    lines = times.read_text().splitlines() if times.exists() else []
    return sorted(lines, key=lambda line: -int(line.split()[-2]))


def in_order(scenarios: list[str]) -> list[str]:
    """Return the scenarios in the order in which they begin."""
    return sorted(scenarios, key=lambda name: (LONGEST.index(name) if name in LONGEST else len(LONGEST), name))


def main(scenarios: list[str]) -> None:
    """Run all of them; told to terminate, begin no further one and wait for those at work, which have nodes to end."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:

        def enough(number: int, frame: FrameType | None) -> None:
            _ending.set()
            pool.shutdown(wait=False, cancel_futures=True)

        signal.signal(signal.SIGTERM, enough)
        begun = [pool.submit(live, scenario) for scenario in in_order(scenarios)]
    for each in begun:
        if not each.cancelled():
            each.result()


if __name__ == "__main__":
    main(sys.argv[1:])
