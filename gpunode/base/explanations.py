"""What programs say when they fail, as cause and remedy, by the rows of explanations.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from gpunode.base.tables import content
from gpunode.base.tables.reading import Row, Table, checked, table

# No program's line is longer that means anything; more of it would only slow the patterns down.
LONGEST_LINE = 2000
_MOST = 3


@dataclass(frozen=True)
class Explanation:
    """Hold why something failed, and what to do about it: a sentence each, without a full stop."""

    cause: str
    remedy: str


@dataclass(frozen=True)
class Rule(Row):
    """Hold a pattern that is searched in a program's words, and what a match means. `kind`: of one kind one is told."""

    kind: str
    said: Annotated[str, AfterValidator(lambda text: re.compile(text, re.ASCII) and text)]
    cause: str
    remedy: str

    def told(self, words: str, **more: str) -> Explanation | None:
        """Return what words of the program mean, None where they are others; `more` stands in the texts as they say."""
        match = re.search(self.said, words, re.ASCII)
        if match is None:
            return None
        named = {name: (value or "").strip() for name, value in match.groupdict().items()}
        named |= {"said": named.get("said", "").rstrip(".:"), "host": _host(named.get("url", "")), **more}
        return Explanation(self.cause.format_map(named), self.remedy.format_map(named))


@dataclass(frozen=True)
class Exit(Row):
    """Hold what a program means by an exit code, and what to do, None where that depends."""

    means: str
    remedy: str | None = None


zypper_exits = table(Table[int, Exit], "explanations.yaml", "zypper_exits")  # type: ignore[type-abstract]


@cache
def rules(program: str) -> tuple[Rule, ...]:
    """Return the rows of a program: apt, zypper or helm; of `access`, what a node says; or of `connection`."""
    rows = content("explanations.yaml")
    for row in rows[program]:
        for name, part in rows["parts"].items():
            row["said"] = row["said"].replace(f"@{name}@", part)
    return checked(tuple[Rule, ...], rows[program], "explanations.yaml")


def explained(program: str, lines: Iterable[str]) -> dict[str, Explanation]:
    """Return kind -> what the lines tell of it, in their order, three at most; none where they are new."""
    found: dict[str, Explanation] = {}
    for line in lines:
        plain = "".join(sign if sign.isprintable() else " " for sign in line[:LONGEST_LINE])
        for rule in rules(program):
            if rule.kind not in found and (told := rule.told(plain)):
                found[rule.kind] = told
                break
        if len(found) == _MOST:
            break
    return found


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or url
    except ValueError:
        return url
