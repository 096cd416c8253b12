"""Parse and compare upstream versions, such as 570.124.06 and 1.17.8, also out of a package's version.

Package managers compare their own versions; here only what the upstream project calls a version is compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from packaging.version import Version

T = TypeVar("T")

_VERSION = re.compile(
    r"(?:\d+:)?"  # a package's epoch
    r"v?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-~]?(?P<phase>alpha|beta|rc)[.-]?(?P<number>\d+))?"
    r"(?:[-+~_][0-9A-Za-z.+~_^-]*)?",  # what distributions and vendors append
    re.ASCII,
)
_PRINTED = re.compile(r"\d+\.\d+(?:\.\d+)?", re.ASCII)
# CUDA and driver versions have four parts at most; a longer digest-like number is never a version.
_LONGEST = 64


class VersionError(ValueError):
    """Say that a text is not a version."""


def _match(text: str) -> re.Match[str]:
    if not isinstance(text, str):
        raise VersionError(f"{text!r} is not a version: it must be a string, in quotes")
    match = _VERSION.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise VersionError(f"{text[:_LONGEST]!r} is not a version; versions look like 580.95.05 or 1.17.8-1")
    return match


def upstream(text: str) -> str:
    """Return the upstream part: `1:1.6.20~ds1-1+deb12u1` -> `1.6.20`, `1.18.0~rc.1-1` -> `1.18.0-rc.1`.

    Raise VersionError where `text` is no version.
    """
    match = _match(text)
    return match["release"] + (f"-{match['phase']}.{match['number']}" if match["phase"] else "")


def parsed(text: str) -> Version:
    """Return the upstream part as an ordered value (570.26 < 570.124.06, 1.18.0-rc.1 < 1.18.0); raise VersionError."""
    match = _match(text)
    return Version(match["release"] + (f"{match['phase']}{match['number']}" if match["phase"] else ""))


def at_least(found: str, minimum: str) -> bool:
    """Say whether `found` is `minimum` or newer, by upstream parts; raise VersionError."""
    return parsed(found) >= parsed(minimum)


def same(one: str, other: str) -> bool:
    """Say whether two texts name the same upstream version (580.95.05-1 and 580.95.05); raise VersionError."""
    return parsed(one) == parsed(other)


def branch_of(version: str) -> str:
    """Return the branch, which is the first number: 580.95.05 -> 580; raise VersionError."""
    return str(parsed(version).release[0])


def in_branch(version: str, branch: str) -> bool:
    """Say whether `version` starts with the whole numbers of `branch`: 580.95.05 is in 580 and in 580.95, not in 58."""
    desired = parsed(branch).release
    return parsed(version).release[: len(desired)] == desired


def major_minor(version: str) -> str:
    """Return the first two numbers: 12.9.1 -> 12.9; raise VersionError."""
    return ".".join(map(str, first_numbers(version, 2)))


def first_numbers(version: str, count: int) -> tuple[int, ...]:
    """Return the first numbers, 0 for those that are missing: 12.9.1 and 2 -> (12, 9); raise VersionError."""
    return (*parsed(version).release, *[0] * count)[:count]


def row_of(version: str, rows: Mapping[str, T]) -> T | None:
    """Return the row that holds for a version; None where it is older than all. Raise VersionError.

    rows: first version -> what holds from that one on, its pre-releases included; a newer version than all has the last
    """
    release = first_numbers(version, 4)
    reached = [first for first in rows if release >= first_numbers(first, 4)]
    return rows[max(reached, key=parsed)] if reached else None


def program_version(printed: str | None) -> str | None:
    """Return the first dotted number of what `PROGRAM --version` printed, None where there is none."""
    match = _PRINTED.search(printed or "")
    return match[0] if match else None
