"""Molecule's scenarios, each a whole life of real nodes; pytest runs them so that one closing line counts all.

They run side by side, one per processor: much of a scenario is waiting, and each has a lab of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Those that take long as a whole, whatever is asked of them.
SLOW = ("vm",)
SCENARIOS = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
    for name in sorted(path.parent.name for path in TESTS.glob("molecule/*/molecule.yml"))
]
SIDE_BY_SIDE = int(os.environ.get("GPUNODE_TEST_SIDE_BY_SIDE") or os.cpu_count() or 1)
# Above what any of them takes beside others; a scenario that hangs is to end before the job does.
SECONDS = 9000 if os.environ.get("GPUNODE_TEST_ALL") == "1" else 3000
TIMES = TESTS.parent / ".reports" / "scenarios.txt"


def live(scenario: str) -> subprocess.CompletedProcess[str]:
    """Run one scenario to its end, and tell in .reports how long it took."""
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "NO_COLOR": "1", "PY_COLORS": "0"}
    begun = time.monotonic()
    done = subprocess.run(
        [binaries / "molecule", "test", "--scenario-name", scenario],
        cwd=TESTS,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    with TIMES.open("a") as times:
        times.write(f"{scenario}: {'passed' if done.returncode == 0 else 'FAILED'}, {time.monotonic() - begun:.0f} s\n")
    return done


@pytest.fixture(scope="session")
def lives(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    """Start every scenario that was asked for, in order, as many at once as there are processors."""
    asked = [item.callspec.params["scenario"] for item in request.session.items if hasattr(item, "callspec")
             and "scenario" in item.callspec.params]  # fmt: skip
    TIMES.parent.mkdir(exist_ok=True)
    TIMES.write_text("")
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        yield {scenario: pool.submit(live, scenario) for scenario in asked}
        pool.shutdown(cancel_futures=True)


@pytest.mark.node
@pytest.mark.simulated
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, lives: dict[str, Future[subprocess.CompletedProcess[str]]]) -> None:
    done = lives[scenario].result()
    assert done.returncode == 0, done.stdout[-12000:]
