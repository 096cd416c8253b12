"""Fold text between words to the columns that there are, and the names of many hosts into few words. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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


# Nobody looks at a terminal: a line of a log is one line, for whoever searches it.
UNBOUND = 1_000_000
# Characters of a cause that views show whole. A log may have megabytes.
LONGEST = 4_000
# Narrower than this nobody reads a table.
NARROWEST = 40
# A command in backticks is one piece, for whoever pastes it.
_PIECE = re.compile("( *)([^ `]*`[^`]+`[^ ]*|[^ ]+)")
# What a node says may have lone backquotes.
_OURS = re.compile(r"`(?:gpunode|pyinfra) [^`]*`")
_WORD = re.compile("( *)([^ ]+)")
# The colours that click writes take no room.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def shortened(text: str, longest: int = LONGEST) -> str:
    """Return a text without its middle where it is longer: programs write the reason of a failure last."""
    half = longest // 2
    left_out = len(text) - 2 * half
    return text if len(text) <= longest else f"{text[:half]} … ({left_out:,} characters left out) … {text[-half:]}"


def in_one_line(value: object, longest: int = LONGEST) -> str:
    """Return the text of an error or an output in one line, without its middle where it is longer."""
    return shortened(" ".join(str(value).split()), longest)


def fold(text: str, columns: int, indent: str) -> str:
    """Return a text folded between words, whose further lines stand under the first of it.

    One word that is longer than the columns has a line of its own, as it is. A command between backquotes stays in one
    line where one has room for it, and one of gpunode's or pyinfra's in any case: it is to be pasted.
    """
    lines = text.split("\n")
    return "\n".join(_folded(line if at == 0 else f"{indent}{line}", columns, indent) for at, line in enumerate(lines))


def fold_lines(text: str, columns: int) -> str:
    """Return a text of which each line is folded by itself: what goes on stands two columns behind its beginning."""
    return "\n".join(fold(line, columns, " " * (len(line) - len(line.lstrip(" ")) + 2)) for line in text.split("\n"))


def _folded(line: str, columns: int, indent: str) -> str:
    if len(line) <= columns:
        return line.rstrip(" ")
    rows = [""]
    taken = 0
    for space, word in _pieces(line, columns - len(indent)):
        room = len(_COLOUR.sub("", word))
        if rows[-1].strip(" ") and taken + len(space) + room > columns:
            rows.append(f"{indent}{word}")
            taken = len(indent) + room
        else:
            rows[-1] += space + word
            taken += len(space) + room
    return "\n".join(rows)


def _pieces(line: str, room: int) -> Iterator[tuple[str, str]]:
    """Yield (the spaces before it, what is not to be folded)."""
    for space, piece in _PIECE.findall(line):
        if len(piece) <= room or _OURS.search(piece):
            yield space, piece
        else:
            yield from _WORD.findall(space + piece)
