"""Molecule's scenarios, each a whole life of real nodes; pytest runs them so that one closing line counts all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Those that take long as a whole, whatever is asked of them.
SLOW = ("vm",)
SCENARIOS = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
    for name in sorted(path.parent.name for path in TESTS.glob("molecule/*/molecule.yml"))
]


@pytest.mark.node
@pytest.mark.simulated
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str) -> None:
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}", "NO_COLOR": "1", "PY_COLORS": "0"}
    done = subprocess.run(
        [binaries / "molecule", "test", "--scenario-name", scenario],
        cwd=TESTS,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=7200 if os.environ.get("GPUNODE_TEST_ALL") == "1" else 1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-12000:]
