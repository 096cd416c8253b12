"""Run molecule's scenarios side by side, each with a lab of its own: `python -m tests.lives NAME...`

A process of its own: pytest awaits one scenario after the other meanwhile. What a scenario prints goes to
.reports/scenarios/NAME.log, its tests' own words to NAME.tests, and its exit status, once it has ended, to NAME.status
beside them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
# As timeout(1) has it.
_TIMED_OUT = 124


def log_of(scenario: str) -> Path:
    """Return the file with what a scenario printed."""
    return REPORTS / f"{scenario}.log"


def words_of(scenario: str) -> Path:
    """Return the file with what the scenario's tests printed; playbooks/verify.yml writes it."""
    return REPORTS / f"{scenario}.tests"


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
    """Run one scenario to its end; leave its exit status, and how long it took."""
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "NO_COLOR": "1", "PY_COLORS": "0"}
    begun = time.monotonic()
    with log_of(scenario).open("w") as log:
        try:
            status = subprocess.run(
                [binaries / "molecule", "test", "--scenario-name", scenario],
                cwd=TESTS, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                timeout=SECONDS, check=False,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            status = _TIMED_OUT
            log.write(f"\n{scenario} did not end within {SECONDS} s\n")
    with TIMES.open("a") as times:
        times.write(f"{scenario}: {'passed' if status == 0 else 'FAILED'}, {time.monotonic() - begun:.0f} s\n")
    # Beside itself first: whoever waits reads it as soon as it is there.
    partial = status_of(scenario).with_suffix(".partial")
    partial.write_text(str(status))
    partial.replace(status_of(scenario))


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
            pool.shutdown(wait=False, cancel_futures=True)

        signal.signal(signal.SIGTERM, enough)
        begun = [pool.submit(live, scenario) for scenario in in_order(scenarios)]
    for each in begun:
        if not each.cancelled():
            each.result()


if __name__ == "__main__":
    main(sys.argv[1:])
