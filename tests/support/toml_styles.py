"""One configuration written in every style that TOML allows: headers, dotted keys, braces, indented, with comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

_BARE = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True)
class Style:
    """Say how a table is written.

    dotted, braces: from which depth on tables are dotted keys or inline tables; 9: nowhere. What begins first holds.
    """

    dotted: int = 9
    braces: int = 9
    indent: str = ""
    supers: bool = False
    comments: bool = False
    literal: bool = False
    windows: bool = False
    bom: bool = False
    end: bool = True

    def text(self, values: dict[str, Any]) -> str:
        """Return the configuration in this style."""
        text = "\n".join(self._table(values, ())) + ("\n" if self.end else "")
        text = text.replace("\n", "\r\n") if self.windows else text
        return "\ufeff" + text if self.bom else text

    def _table(self, values: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
        indent = self.indent * max(len(path) - 1, 0)
        for key, value in values.items():
            if not isinstance(value, dict):
                if self.comments:
                    yield f"{indent}# of {key}"
                yield f"{indent}{self.key(key)} = {self.value(value)}{'  # kept' if self.comments else ''}"
        tables = {key: value for key, value in values.items() if isinstance(value, dict)}
        depth = len(path)
        # What is dotted or in braces belongs to the table above, so that it stands before any other header.
        if depth >= min(self.dotted, self.braces):
            for key, value in tables.items():
                if self.braces <= self.dotted or depth >= self.braces or not value:
                    yield f"{indent}{self.key(key)} = {self.value(value)}"
                else:
                    yield from self._dotted(value, (key,), indent, depth + 1)
            return
        for key, value in tables.items():
            plain = any(not isinstance(inner, dict) for inner in value.values())
            bare = depth + 1 >= min(self.dotted, self.braces)
            if plain or bare or self.supers or not value:
                yield ""
                yield f"{self.indent * depth}[{'.'.join(map(self.key, (*path, key)))}]"
            yield from self._table(value, (*path, key))

    def _dotted(self, values: dict[str, Any], path: tuple[str, ...], indent: str, depth: int) -> Iterator[str]:
        for key, value in values.items():
            if isinstance(value, dict) and value and depth < self.braces:
                yield from self._dotted(value, (*path, key), indent, depth + 1)
            else:
                yield f"{indent}{'.'.join(map(self.key, (*path, key)))} = {self.value(value)}"

    def key(self, key: str) -> str:
        """Return a key, bare where it may be."""
        return key if _BARE.fullmatch(key) else self.value(key)

    def value(self, value: Any) -> str:
        """Return a value, a table in braces among them."""
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.key(key)} = {self.value(inner)}" for key, inner in value.items()) + "}"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.value, value)) + "]"
        if isinstance(value, str) and self.literal and "'" not in value:
            return f"'{value}'"
        return json.dumps(value, ensure_ascii=False) if not isinstance(value, bool) else str(value).lower()


STYLES = st.builds(
    Style,
    dotted=st.sampled_from([0, 1, 2, 3, 4, 9, 9, 9]),
    braces=st.sampled_from([0, 1, 2, 3, 4, 9, 9, 9]),
    indent=st.sampled_from(["", "", "  ", "\t"]),
    supers=st.booleans(),
    comments=st.booleans(),
    literal=st.booleans(),
    windows=st.booleans(),
    bom=st.booleans(),
    end=st.booleans(),
)
