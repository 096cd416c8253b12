"""Edits of TOML files that people wrote: to the byte what they were where nothing differs, else proven before use.

An edit is a function that changes a table in place. It is made twice: on plain values, which tell what the file is to
say, and on tomlkit's document, which keeps comments and order. Where tomlkit's text, read by another parser, says
anything else, the file is refused.
"""

from __future__ import annotations

import copy
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, cast

import tomlkit
from tomlkit.items import InlineTable

from gpunode.base.structured_text import TextError, TextLimitError, load_toml

BOM = "\ufeff"
# What stands for a byte that is not UTF-8 in a text that was read from a node (gpunode/base/probe_output.py).
NO_UTF8 = "\ufffd"
# tomlkit takes some 20 µs for each character, the square of the number of dotted keys in a table, and far more for
# those in braces: their dots are counted in the text without its strings and comments.
_LARGEST, _DOTS_IN_BRACES = 64 << 10, 60
_NO_KEYS = re.compile(r'"""(?:\\.|[^\\])*?"""|\'\'\'.*?\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#[^\n]*', re.DOTALL)
_KEY_IN_BRACES = re.compile(r"[{,]\s*([\w-]+(?:\s*\.\s*[\w-]+)+)\s*=")


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


Table = MutableMapping[str, Any]


class TableView(MutableMapping[str, Any]):
    """A table as the program reads it that the file is for; `put` and `table_in` write to the table itself."""

    table: Table

    @abstractmethod
    def spelled(self, key: str) -> str:
        """Return the key of the table itself under which to write the value of `key`."""


class ConfigurationRefused(ValueError):
    """Say why a configuration file cannot be edited; key: what of the file it is about, by which its line is found."""

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


def plain(text: str) -> dict[str, Any]:
    """Return what a file has, without its byte order mark; raise ConfigurationRefused, with the line."""
    try:
        return load_toml(text.removeprefix(BOM))
    except TextError as error:
        what = "cannot be read" if isinstance(error, TextLimitError) else "is not TOML"
        raise ConfigurationRefused(f"the file {what}: {error}. Remedy: correct it, or move it away") from error


def edited(text: str, edit: Callable[[Table], None]) -> str:
    """Return the text after an edit, the very same where the edit changes nothing; raise ConfigurationRefused.

    A file whose lines all end as Windows ends them keeps that; a byte order mark goes with the first edit.
    """
    before = plain(text)
    desired = copy.deepcopy(before)
    try:
        edit(desired)
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{where(text, [refusal.key])}{refusal}" if refusal.key else str(refusal)) from None
    if same(before, desired):
        return text
    if reason := not_utf8(text):
        raise ConfigurationRefused(reason)
    body = bare(text)
    if body and not body.endswith("\n"):
        body += "\n"  # tomlkit would write on in the last line
    rendered = _rendered(body, edit, desired)
    if rendered is None and (headed := _with_headers(body)) is not None:
        rendered = _rendered(headed, edit, desired)
    if rendered is None:
        raise ConfigurationRefused(
            f"{where(text, _difference(before, desired))}the file's spelling does not allow an edit that keeps the "
            f"rest. Remedy: write this table under a header of its own, such as [plugins]: no dotted keys, no braces"
        )
    return ended_like(rendered, text)


def table_in(parent: Table, key: str, hidden: bool = False) -> Table:
    """Return the table under `key`, made where it is missing; raise ConfigurationRefused where something else is there.

    hidden: no header of its own is printed for it where it holds nothing but tables
    """
    if key not in parent:
        owner = parent.table if isinstance(parent, TableView) else parent
        if isinstance(owner, InlineTable):
            parent[key] = tomlkit.inline_table()
        else:
            parent[key] = {} if type(owner) is dict else tomlkit.table(is_super_table=hidden)
    table = parent[key]
    if not isinstance(table, MutableMapping):
        raise ConfigurationRefused(f"{key!r} is no table in this file, but {table!r}. Remedy: correct it", key)
    return cast(Table, table)


def put(table: Table, key: str, value: Any) -> None:
    """Set a key only where it differs, so that a value that is right keeps its spelling and inline comment."""
    if key in table and same(_unwrapped(table[key]), _unwrapped(value)):
        return
    if isinstance(table, TableView):
        key = table.spelled(key)
        table = table.table
    old = table.item(key) if key in table and hasattr(table, "item") else None
    if old is None or isinstance(table, InlineTable):
        table[key] = value
        return
    item = tomlkit.item(value)
    item.trivia.comment_ws, item.trivia.comment = old.trivia.comment_ws, old.trivia.comment
    item.trivia.trail, item.trivia.indent = old.trivia.trail, old.trivia.indent
    table[key] = item


def filled(table: Table, values: Mapping[str, Any]) -> None:
    """Add copies of values, tables among them, to a table."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            filled(table_in(table, key), value)
        else:
            table[key] = copy.deepcopy(_unwrapped(value))


def leaves(table: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) of each value in a table and in those below it."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def same(one: Any, other: Any) -> bool:
    """Say whether two values mean the same to TOML: true is not 1, 1 is not 1.0, and nan is nan."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (bool(one == other) or (one != one and other != other))


def parsed(text: str) -> tomlkit.TOMLDocument:
    """Return tomlkit's document of a text that `plain` reads; raise ConfigurationRefused where that takes too long.

    Else tomlkit raises what it raises where it does not master a spelling.
    """
    if len(text) > _LARGEST:
        why = f"the file is larger than {_LARGEST >> 10} KiB, which gpunode does not edit. Remedy: shorten it"
        raise ConfigurationRefused(why)
    if sum(key.count(".") for key in _KEY_IN_BRACES.findall(_NO_KEYS.sub("_", text))) > _DOTS_IN_BRACES:
        why = "the file has too many keys with dots in braces. Remedy: write those tables under headers of their own"
        raise ConfigurationRefused(why)
    return tomlkit.parse(text)


# A line `a.b.c = …`, with what it has before the last part of its key; and the header of a table.
_PART = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = re.compile(rf"[ \t]*({_PART}(?:[ \t]*\.[ \t]*{_PART})*)[ \t]*\.[ \t]*({_PART}[ \t]*=.*)")
_HEADER = re.compile(r"[ \t]*\[([^\[\]\n]+)\][ \t]*(?:#.*)?")


def _with_headers(body: str) -> str | None:
    """Return a text with its dotted keys under headers of their own; None where it has none, or means another thing."""
    lines: list[str] = []
    tables: dict[str, list[str]] = {}
    table = ""
    for line in [*body.splitlines(), None]:
        if line is None or line.lstrip().startswith("["):
            for name, keys in tables.items():
                lines += [f"[{name}]", *keys, ""]
            header = _HEADER.fullmatch(line or "")
            tables, table = {}, f"{header[1].strip()}." if header else ""
        match = _DOTTED.fullmatch(line or "")
        if match is not None:
            tables.setdefault(f"{table}{match[1]}", []).append(match[2])
        elif line is not None:
            lines.append(line)
    text = "\n".join([*lines, ""])
    try:
        return text if text != body and same(load_toml(text), load_toml(body)) else None
    except TextError:
        return None


def _rendered(body: str, edit: Callable[[Table], None], desired: dict[str, Any]) -> str | None:
    """Return tomlkit's text after an edit; None where the other parser reads another thing in it."""
    try:
        document = parsed(body)
        edit(document)
        rendered = tomlkit.dumps(document)
        return rendered if same(load_toml(rendered), desired) else None
    except ConfigurationRefused:
        raise
    except Exception:  # tomlkit raises many errors where it does not master a spelling.
        return None


def _unwrapped(value: Any) -> Any:
    return value.unwrap() if hasattr(value, "unwrap") else value


def _difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path to the first value that is another."""
    for key in (*before, *after):
        old, new = before.get(key), after.get(key)
        if not same(old, new):
            inner = _difference(old, new) if isinstance(old, dict) and isinstance(new, dict) else ()
            return (key, *inner)
    return ()
