"""What a text file has besides what it says: a byte order mark, the ends of its lines, letters that are not UTF-8."""

from __future__ import annotations

from collections.abc import Iterable

BOM = "\ufeff"
# What stands for a byte that is not UTF-8 in a text that was read from a node (gpunode/base/probe_output.py).
NO_UTF8 = "\ufffd"


def not_utf8(text: str) -> str | None:
    """Return why a text cannot be edited that is not UTF-8, with line and remedy; None where it is."""
    if NO_UTF8 not in text:
        return None
    line = text[: text.index(NO_UTF8)].count("\n") + 1
    return (
        f"line {line}: the file holds a byte that is not UTF-8, which an edit would lose; convert it, such as by "
        "`iconv -f latin1 -t utf-8`"
    )


def bare(text: str) -> str:
    """Return a text without byte order mark, and with line ends of Unix where all of them are of Windows."""
    body = text.removeprefix(BOM)
    return body.replace("\r\n", "\n") if is_windows(body) else body


def is_windows(text: str) -> bool:
    """Say whether all lines end as Windows ends them; a text without any line end does not."""
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def ended_like(text: str, like: str) -> str:
    """Return a text of Unix' line ends with those of another."""
    return text.replace("\n", "\r\n") if is_windows(like) else text


def where(text: str, names: Iterable[str]) -> str:
    """Return `line N: ` of the last of these names that stands in the text outside of a comment; nothing where none."""
    for name in reversed([*names]):
        for number, line in enumerate(text.splitlines(), 1):
            if name in line and not line.lstrip().startswith("#"):
                return f"line {number}: "
    return ""
