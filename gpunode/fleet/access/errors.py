"""Why no connection came about, or a node runs nothing for the user who came: sudo, the shell, an expired password.

Pure: lines of text in, an explanation out.
"""

from __future__ import annotations

from collections.abc import Iterable

from gpunode.base.explanations import Explanation, rules

# Between cause and remedy, where both stand in one text.
REMEDY = ". Remedy: "
# sudo asks within the first lines; a long output is a command's own.
_LINES = 40


def explained(lines: Iterable[str]) -> Explanation | None:
    """Return why the node ran nothing, and what to do; None where the lines say nothing of that.

    lines: what a command that failed printed
    """
    first = [line.strip() for line, _ in zip(lines, range(_LINES), strict=False)]
    return next((told for rule in rules("access") for line in first if (told := rule.told(line))), None)


def unreached(error: str) -> str:
    """Return why no connection came about, in the words that pyinfra has, with what to do where that is known."""
    told = next((told for rule in rules("connection") if (told := rule.told(error))), None)
    return error if told is None else f"{error}{REMEDY}{told.remedy}"


def sentence(explanation: Explanation) -> str:
    """Return cause and remedy as one text."""
    return f"{explanation.cause}{REMEDY}{explanation.remedy}"


def parted(reason: str | None) -> tuple[str | None, str | None]:
    """Return (cause, remedy) of a text, the remedy None where it names none."""
    if reason is None:
        return None, None
    cause, found, remedy = reason.partition(REMEDY)
    return cause, remedy if found else None
