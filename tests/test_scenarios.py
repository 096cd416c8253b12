"""Molecule's scenarios, each a whole life of real nodes; pytest awaits them so that one closing line counts them."""

from __future__ import annotations

import subprocess
import time
import warnings
from pathlib import Path

import pytest

from tests.lives import first_of, log_of, status_of, words_of

# Those that take long as a whole, whatever is asked of them.
SLOW = ("vm",)
SCENARIOS = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW else ())
    for name in sorted(path.parent.name for path in Path(__file__).parent.glob("molecule/*/molecule.yml"))
]


@pytest.mark.node
@pytest.mark.simulated
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, lives: subprocess.Popen[bytes]) -> None:
    while not status_of(scenario).exists():
        assert lives.poll() is None or status_of(scenario).exists(), f"tests.lives ended ({lives.returncode}) before it"
        time.sleep(0.5)
    # The tests' words last: a job's output is often kept from its end backwards, and they name what failed.
    files = (log_of(scenario), words_of(scenario))
    assert status_of(scenario).read_text() == "0", _said(files)
    first = tuple(map(first_of, files))
    if any(path.exists() for path in first):
        text = f"{scenario} failed, and passed when it was run again; find out why. It said:\n{_said(first)}"
        warnings.warn(text, stacklevel=1)


def _said(files: tuple[Path, ...]) -> str:
    """Return the end of each of these files, as far as they are there."""
    return "\n".join(path.read_text(errors="replace")[-12000:] for path in files if path.exists())
