"""Helpers and data for the tests of how to."""

from __future__ import annotations

import re
from pathlib import Path

PAGES = Path(__file__).parents[2] / "docs" / "how-to"


def snippet(page: str, name: str) -> str:
    """Return the one fenced snippet of a page that has a name behind its language."""
    text = (PAGES / page).read_text(encoding="utf-8")
    (found,) = re.findall(rf"^ *```\w+ {name}\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    return str(found)
