"""Names of many hosts in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Fewer in a row are as short by their names.
_ROW = 3
_NUMBERED = re.compile(r"(.*?)(\d+)", re.DOTALL)


def folded(names: Iterable[str]) -> str:
    """Return names with commas between them, those that are numbered in a row by the first and the last of them.

    `gpu-1 to gpu-4, gpu-9`; the order is that of the names.
    """
    return ", ".join(map(_in_words, _in_rows(names)))


def folded_first(names: Iterable[str], most: int) -> str:
    """Return names as `folded` does, the first `most` rows of them, or all where one more row is left.

    `gpu-1 to gpu-4, gpu-9 and 12 more`
    """
    rows = _in_rows(names)
    if len(rows) <= most + 1:
        return ", ".join(map(_in_words, rows))
    return f"{', '.join(map(_in_words, rows[:most]))} and {sum(map(len, rows[most:])):,} more"


def _in_rows(names: Iterable[str]) -> list[list[str]]:
    rows: list[list[str]] = []
    for name in names:
        if rows and _follows(rows[-1][-1], name):
            rows[-1].append(name)
        else:
            rows.append([name])
    return rows


def _in_words(row: list[str]) -> str:
    return f"{row[0]} to {row[-1]}" if len(row) >= _ROW else ", ".join(row)


def _follows(before: str, name: str) -> bool:
    first, second = _NUMBERED.fullmatch(before), _NUMBERED.fullmatch(name)
    if first is None or second is None or first[1] != second[1]:
        return False
    # gpu-09 and gpu-10 are in a row, gpu-9 and gpu-010 are not.
    has_zeros = first[2].startswith("0") or second[2].startswith("0")
    return int(second[2]) == int(first[2]) + 1 and (not has_zeros or len(first[2]) == len(second[2]))
