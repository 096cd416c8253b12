"""Names of many hosts in few words."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Fewer in a row are as short by their names.
_ROW = 3
# Shorter lines hold too few names.
_LINE = 80
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


def folded_in_a_line(names: Iterable[str], columns: int) -> str:
    """Return names as `folded` does; of those that take more than a line the first rows, and how many nodes follow.

    `gpu-1 to gpu-4, apollo, zeus and 12 more nodes`; columns: of that line, which is taken as no shorter than 80
    """
    columns = max(_LINE, columns)
    rows = _in_rows(names)
    whole = ", ".join(map(_in_words, rows))
    if len(whole) <= columns:
        return whole
    shown, taken = 1, len(_in_words(rows[0])) if rows else 0
    # One is shown whatever its length is, and one that is left is no longer than the words that would stand for it.
    for row in rows[1:-2]:
        taken += len(", ") + len(_in_words(row))
        if taken + len(_more(rows[shown + 1 :])) > columns:
            break
        shown += 1
    left = rows[shown:]
    return f"{', '.join(map(_in_words, rows[:shown]))}{_more(left)}" if len(left) > 1 else whole


def _more(rows: list[list[str]]) -> str:
    return f" and {sum(map(len, rows)):,} more nodes"


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
