"""Read what probes print: `key=value` lines, in sections, closed by a sentinel.

Probes print lines instead of JSON because a bare node need not have a JSON tool, and a sentinel because pyinfra hands a
truncated output on as if it were whole.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

from gpunode.base.messages import REMEDY
from gpunode.base.reading import ParseError

END = "gpunode:end"
SECTION = "gpunode:section "
# Bytes of one answer, and of one file in it (gpunode/base/probe.sh).
ANSWER_SIZE = 16 << 20
TOO_LARGE = "the answer is larger than"
CORRECT = "find out which file or program of the GPU stack prints so much, and correct it"

_LOOK = "look at it on the node; correct what it is, or who may read it"


def too_large(limit: int | str) -> str:
    """Return what to print of an answer above the limit, in bytes or in words, with its remedy."""
    return f"{TOO_LARGE} {limit if isinstance(limit, str) else f'{limit >> 20} MiB'}{REMEDY}{CORRECT}"


def checked(lines: list[str]) -> list[str]:
    """Return `lines` without the closing sentinel; raise ParseError where it is missing (a truncated answer)."""
    stripped = [line.rstrip("\r") for line in lines]
    while stripped and not stripped[-1].strip():
        stripped.pop()
    if sum(len(line) + 1 for line in lines) >= ANSWER_SIZE:
        raise ParseError(too_large(ANSWER_SIZE))
    if not stripped or stripped[-1] != END:
        raise ParseError("the answer is truncated: its closing line is missing")
    return stripped[:-1]


def sections(lines: Iterable[str]) -> dict[str, list[str]]:
    """Split `lines` at section headers into name -> lines; lines before the first header are refused."""
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if line.startswith(SECTION):
            current = found.setdefault(line.removeprefix(SECTION), [])
        elif current is None:
            raise ParseError(f"a line stands before the first section: {line[:80]!r}")
        else:
            current.append(line)
    return found


# The CPUs of the largest machines are a line each. What compares lines takes time by the square of their number.
_MOST_LINES = 10_000


def pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    """Return (key, value) of every `key=value` line, in order; raise ParseError on any other line."""
    found = []
    for line in lines:
        if not line.strip():
            continue
        key, separator, value = line.partition("=")
        if not separator or not key:
            raise ParseError(f"not a key=value line: {line[:80]!r}")
        found.append((key, value))
    if len(found) > _MOST_LINES:
        raise ParseError(f"{len(found)} lines are more than {_MOST_LINES}, which no component of a node prints")
    return found


def values(lines: Iterable[str]) -> dict[str, str]:
    """Return key -> value, the last one winning; an empty value is left out."""
    return {key: value for key, value in pairs(lines) if value}


def repeated(lines: Iterable[str], key: str) -> list[str]:
    """Return the values of every line whose key is `key`."""
    return [value for found, value in pairs(lines) if found == key]


def number(text: str) -> int:
    """Return a whole number, of 19 digits at most; raise ParseError."""
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ParseError(f"not a number: {text[:40]!r}")
    return int(text)


_TIME = re.compile(r"-?\d{1,19}(\.\d{1,19})?", re.ASCII)


def timestamp(text: str) -> float:
    """Return a time in seconds; raise ParseError."""
    if not _TIME.fullmatch(text):
        raise ParseError(f"not a time: {text[:40]!r}")
    return float(text)


def cells(line: str, count: int) -> list[str]:
    """Return what tabs divide of a line; raise ParseError where it is another number of cells."""
    found = line.split("\t")
    if len(found) != count:
        raise ParseError(f"{len(found)} cells and not {count}: {line[:120]!r}")
    return found


def decoded(found: Mapping[str, str], key: str) -> str | None:
    """Return the text of the base64 value under `key`, None where it is absent; raise ParseError."""
    if key not in found:
        return None
    try:
        text = base64.b64decode(found[key].removeprefix("-"), validate=True).decode("utf-8", errors="replace")
    except (binascii.Error, ValueError) as error:
        raise ParseError(f"{key} is not base64: {error}") from error
    if found[key].startswith("-"):
        raise ParseError(f"{text[:200]!r} cannot be read, or is larger than 1 MiB{REMEDY}{_LOOK}")
    return text


def files(lines: Iterable[str], key: str = "file") -> list[tuple[str, str]]:
    """Return (path, text) of every line `KEY=PATH BASE64`; raise ParseError."""
    rows = (row.rpartition(" ") for row in repeated(lines, key))
    return [(path, decoded({path: encoded}, path) or "") for path, _, encoded in rows]
