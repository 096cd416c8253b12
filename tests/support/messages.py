"""Facts in a message for people: the names, numbers and settings in it, whatever its sentences say."""

from __future__ import annotations

import re


def unnamed(text: str | None, *values: object) -> list[str]:
    """Return the values that a text does not name as whole words: 580.95.05 names neither 580 nor 95."""
    return [
        str(value)
        for value in values
        if not re.search(rf"(?<![\w-])(?<!\w\.){re.escape(str(value))}(?!\.?[\w-])", text or "")
    ]
