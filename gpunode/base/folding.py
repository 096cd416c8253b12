"""Text that fits: folded between words to the columns there are, never cut within a name. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
