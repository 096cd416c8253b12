"""Snapshots of the texts that people read: one file per view, data/VIEW/80.txt.

`GPUNODE_TEST_SNAPSHOTS=write` rewrites the files before the comparison; a person reads the difference in review.
"""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(__file__).parents[1] / "unit" / "data"
COLUMNS = 80


def check_snapshot(view: str, text: str) -> None:
    """Compare a view's text at 80 columns with its snapshot."""
    path = DATA / view / f"{COLUMNS}.txt"
    if os.environ.get("GPUNODE_TEST_SNAPSHOTS") == "write":
        path.write_text(text)
    assert text == path.read_text(), path


def overlong(text: str, columns: int) -> list[str]:
    """Return the lines that do not fit, apart from single words, commands to paste, and usage lines of click."""
    return [
        line
        for line in text.splitlines()
        if len(line) > columns and len(line.split()) > 1 and "`" not in line and not line.startswith("Usage: ")
    ]
