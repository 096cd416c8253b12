"""Text that fits: folded between words to the columns there are, never cut within a name. Pure."""

from __future__ import annotations

import re

# Nobody looks at a terminal: a line of a log is one line, for whoever searches it.
UNBOUND = 1_000_000
# Narrower than this nobody reads a table.
NARROWEST = 40
_PIECE = re.compile("( *)([^ ]+)")
# The colours that click writes take no room.
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def fold(text: str, columns: int, indent: str) -> str:
    """Return a text folded between words, whose further lines stand under the first of it.

    One word that is longer than the columns has a line of its own, as it is.
    """
    lines = text.split("\n")
    return "\n".join(_folded(line if at == 0 else f"{indent}{line}", columns, indent) for at, line in enumerate(lines))


def _folded(line: str, columns: int, indent: str) -> str:
    rows = [""]
    taken = 0
    for space, word in _PIECE.findall(line):
        room = len(_COLOUR.sub("", word))
        if rows[-1].strip(" ") and taken + len(space) + room > columns:
            rows.append(f"{indent}{word}")
            taken = len(indent) + room
        else:
            rows[-1] += space + word
            taken += len(space) + room
    return "\n".join(rows)
