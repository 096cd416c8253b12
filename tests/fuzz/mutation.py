"""Change a sample as a hostile node, server or user would: a probe's lines, the values of JSON, the text of a file."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any

# What stands where something else is expected. A key or a word of another sample comes from the samples themselves.
WORDS = (
    "", " ", "-", "=", ",", "0", "-1", "1.5", "07", "9" * 19, "9" * 400, "1e999", "nan", "inf", "0x1f", "1_0", "²",
    "１", "[N/A]", "[Not Supported]", "N/A", "null", "true", "yes", "[]", "{}", '""', "x", "x y", "../../../etc", "/",
    "a" * 5000, "%s", "%d", "{0}", "{{x}}", "$(x)", "`x`", "--help", "\t", "a\tb\tc\td", "*", "[", "(", "\\", "\x00",
    "\x1b[2J", "\ud800", "\u202e", "\U0010ffff", "</script>", "#", ":", "::", "0:0", "0-4294967296", "4-0",
    "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-02-30T25:61:61Z", "Thu 1969-01-01 00:00:00 UTC", "1.2.3.4.5",
    "00000000:1A:00.0", "GPU-0", "MIG-0", "gpunode:section gpus", "gpunode:end", "unknown", "enabled", "failed",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**30, -(2**63), float("nan"), float("inf"), "", [], {}, [[]], [None], {"": None},
    {"x": {}}, [1, "x", None], 5000 * "x", "\ud800", "\x00",
)  # fmt: skip
# Of YAML and TOML, behind a key.
TYPED = (
    "null", "~", "true", "[]", "{}", "[null]", "{a: 1}", "{ a = 1 }", "1979-05-27T07:32:00Z", "nan", ".inf", "0o17",
    "!!python/object:os.system x", "!x y", "&a b", "*a", "|", ">", "'", '"""', "- x", "[[1], [2]]", "1e400", "07:32:00",
)  # fmt: skip
_NESTED = 30
_LONGEST = 200_000


def lines(random: Random, text: str, others: Sequence[str]) -> str:
    """Return the lines of a probe's answer with some of them changed, as printable ASCII, which is all that arrives."""
    rows = text.splitlines() or [""]
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(rows)) if rows else 0
        how = random.randrange(10)
        if not rows or how == 0:
            rows.insert(at, random.choice([*_rows(random, others), *WORDS]))
        elif how == 1:
            del rows[at]
        elif how == 2:
            rows.insert(random.randrange(len(rows) + 1), rows[at])
        elif how == 3:
            rows[at] = rows[at][: random.randrange(len(rows[at]) + 1)]
        elif how == 4:
            rows += [rows[at]] * random.choice([1, 10, 1000])
        elif how == 5:
            key, separator, _ = rows[at].partition("=")
            rows[at] = f"{key}{separator}{random.choice(_rows(random, others)).partition('=')[2]}"
        else:
            key, separator, value = rows[at].partition("=")
            rows[at] = f"{key}{separator}{_value(random, value)}"
    return "\n".join("".join(each for each in row if " " <= each <= "~" or each == "\t") for row in rows)[:_LONGEST]


def _rows(random: Random, others: Sequence[str]) -> list[str]:
    return random.choice(others).splitlines() or [""]


def _value(random: Random, value: str) -> str:
    if len(value) > 30 and (text := _decoded(value)) is not None:
        form = of_json if text.lstrip()[:1] in ("{", "[") else of_text
        return base64.b64encode(form(random, text, [text]).encode("utf-8", "surrogatepass")).decode()
    how = random.randrange(4)
    if how == 0:
        return random.choice(WORDS)
    if how == 1:
        return base64.b64encode(random.choice((*WORDS, *TYPED)).encode("utf-8", "surrogatepass")).decode()
    cells = re.split(r"([ ,\t|:]+)", value)
    at = random.randrange(len(cells))
    cells[at] = random.choice(WORDS) if how == 2 else cells[at] * random.choice([0, 2, 50])
    return "".join(cells)


def _decoded(value: str) -> str | None:
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def of_json(random: Random, text: str, others: Sequence[str]) -> str:
    """Return a JSON document with some of its values changed; now and then only its text."""
    if random.randrange(10) == 0:
        return of_text(random, text, others)
    try:
        document = json.loads(text)
    except ValueError:
        return of_text(random, text, others)
    for _ in range(random.randint(1, 3)):
        document = _changed(random, document, others)
    return json.dumps(document, ensure_ascii=random.randrange(2) == 0)[:_LONGEST]


def _changed(random: Random, value: Any, others: Sequence[str]) -> Any:
    """Change one value, the nearer to the leaves the likelier."""
    if isinstance(value, dict) and value and random.randrange(8):
        key = random.choice(list(value))
        how = random.randrange(12)
        if how == 0:
            return {other: each for other, each in value.items() if other != key}
        if how == 1:
            return {random.choice(WORDS) if other == key else other: each for other, each in value.items()}
        return {**value, key: _changed(random, value[key], others)}
    if isinstance(value, list) and value and random.randrange(8):
        at = random.randrange(len(value))
        how = random.randrange(12)
        if how == 0:
            return value[:at] + value[at + 1 :]
        if how == 1:
            return [*value, *[value[at]] * random.choice([1, 50])]
        return [*value[:at], _changed(random, value[at], others), *value[at + 1 :]]
    how = random.randrange(8)
    if how == 0:
        return [value]
    if how == 1:
        return {"x": value}
    if how == 2:
        return random.choice(WORDS)
    if how == 3 and isinstance(value, str):
        return _value(random, value)
    if how == 4:
        for _ in range(_NESTED):
            value = [value]
        return value
    return random.choice(VALUES)


def of_text(random: Random, text: str, others: Sequence[str]) -> str:
    """Return a configuration or other text with some lines, keys or values changed."""
    rows = text.splitlines() or [""]
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(rows)) if rows else 0
        how = random.randrange(9)
        if not rows or how == 0:
            rows.insert(at, random.choice([*_rows(random, others), *TYPED]))
        elif how == 1:
            del rows[at]
        elif how == 2:
            rows.insert(random.randrange(len(rows) + 1), rows[at])
        elif how == 3:
            rows[at] = rows[at][: random.randrange(len(rows[at]) + 1)]
        elif how == 4:
            rows[at] = random.choice([" ", "  ", "\t", "- ", "#", "[", "[["]) + rows[at]
        else:
            cells = re.split(r"(\s*[:=]\s*)", rows[at], maxsplit=1)
            cells[-1] = random.choice(TYPED if how < 7 else WORDS)
            rows[at] = "".join(cells)
    whole = "\n".join(rows)[:_LONGEST]
    return whole if random.randrange(10) else whole[: random.randrange(len(whole) + 1)]
