"""Read YAML, TOML and JSON that anybody may have written, within limits of size, depth and number of values.

Nodes, servers, reports and users write what is read here. A text that breaks a limit is refused before it takes memory
or time: libyaml composes by recursion in C, where a deep text ends the process, aliases of YAML repeat each other, and
tomllib takes time and memory by the square of the dots in a key. No other module reads such a text by itself.

Kubernetes' API server has its own text for a number: `16k` for 16000.
source of quantities: kubernetes/apimachinery, pkg/api/resource/quantity.go (CanonicalizeBytes)
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import Any

from gpunode.base.reading import ParseError

# Characters of a file, and of what a program or a server prints.
FILE = 1 << 20
DOCUMENT = 16 << 20
# What gpunode itself prints of thousands of hosts, some 20 KiB each.
FLEET = 128 << 20
# Collections in each other: manifests of large charts have some 30.
DEEPEST = 64
# Characters for each value of YAML, aliases counted as what they repeat: a kubelet's file has 13, a list of digits 2.
_CHARACTERS_OF_A_VALUE = 12
# YAML reads 1:1:1 as a number to the base of 60, in time by the square of its length.
_LONGEST_NUMBER = 256
# Floating-point numbers end at 1024 bits.
_MOST_BITS = 768
_NUMBER = re.compile(r"[-+]?[0-9._:]*")
# Python's hash of an integer is its rest by 2**61 - 1: keys of one rest take time by the square of their count.
_LONG_KEY, _MOST_LONG_KEYS = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]*|(?:0b)?[0-9._:]*)"), 1_000
_DOTS, _DOTS_IN_A_LINE = 20_000, 1_000
# tomllib walks through the whole header of a table for each line below it: dots of the longest header times lines.
_STEPS = 1 << 20
# libyaml compares each declared prefix with all before it, and writes it into every tag that uses it.
_TAG_DIRECTIVE = re.compile("(?:^|[\r\n\x85\u2028\u2029])\ufeff?%TAG")


class TextError(ParseError):
    """Say why a text cannot be read; `line` is where, None where that is not known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        super().__init__(f"line {line}: {problem}" if line else problem)
        self.problem, self.line = problem, line

    @property
    def unquoted(self) -> str:
        """Return the end of a message that repeats nothing of the text, which may hold a secret."""
        return f" (line {self.line})" if self.line else ""


class TextLimitError(TextError):
    """Say which limit a text breaks."""

    @property
    def unquoted(self) -> str:
        """Return the limit: it repeats nothing of the text."""
        return f" ({self})"


class KeyTwiceError(TextError):
    """Report a key that a mapping has twice."""

    def __init__(self, key: str, lines: tuple[int, int] | None = None) -> None:
        where = f", in lines {lines[0]} and {lines[1]}" if lines else ""
        super().__init__(f"the key {key[:60]!r} is given twice{where}: remove one of the two")
        self.key, self.line = key, lines[1] if lines else None


def load_yaml(text: str, largest: int = FILE, *, unique: bool = False, tolerant: bool = False) -> Any:
    """Return what a YAML document says; raise TextError.

    unique: refuse a key that a mapping has twice; else the last one counts
    tolerant: read what has a tag of a program's own, such as !vault, as null
    """
    check_yaml(text, largest, unique=unique)
    with _refusals():
        loader = _loader("tolerant" if tolerant else "")(text)
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
        return _checked(found)


def load_documents(text: str, largest: int = FILE, *, unique: bool = False) -> list[tuple[int, Any]]:
    """Return (line, content) of each document of a YAML text as Kubernetes reads it; raise TextError.

    A date is a string to Kubernetes, and so is an equals sign.
    """
    check_yaml(text, largest, unique=unique)
    found = []
    with _refusals():
        loader = _loader("kubernetes")(text)
        try:
            while loader.check_node():
                node = loader.get_node()
                found.append((node.start_mark.line + 1, _checked(loader.construct_document(node))))
        finally:
            loader.dispose()
    return found


def load_toml(text: str, largest: int = FILE) -> dict[str, Any]:
    """Return what a TOML document says; raise TextError."""
    _check_size(text, largest)
    dots = longest = steps = 0
    for number, line in enumerate(text.split("\n"), 1):
        dots += (here := line.count("."))
        # A line of a string may begin like a header: the longest one counts to the end.
        longest = max(longest, here) if line.lstrip().startswith("[") else longest
        steps += longest
        if steps > _STEPS:
            raise TextLimitError("a header with too many dots for the lines below it", number)
        if here > _DOTS_IN_A_LINE or dots > _DOTS:
            raise TextLimitError(f"more than {_DOTS_IN_A_LINE} dots in one line, or {_DOTS} in all", number)
    with _refusals():
        found: dict[str, Any] = _checked(tomllib.loads(text))
        return found


def load_json(text: str | bytes, largest: int = DOCUMENT, *, unique: bool = False) -> Any:
    """Return what a JSON document says; raise TextError. `unique`: refuse a key that an object has twice."""
    _check_size(text, largest)
    with _refusals():
        return _checked(json.loads(text, object_pairs_hook=_unique_pairs if unique else None), finite=True)


@dataclass(slots=True)
class _Collection:
    """A sequence or mapping whose end is still to come; `lines` are those of a mapping's keys, None of a sequence."""

    anchor: str | None
    before: int
    lines: dict[tuple[str, str], int] | None
    at_key: bool


def check_yaml(text: str, largest: int = FILE, *, unique: bool = False) -> None:
    """Raise TextError where a text is no YAML or breaks a limit, by its events: nothing is built of them."""
    import yaml  # late: most commands and nodes need none

    _check_size(text, largest)
    if _TAG_DIRECTIVE.search(text):
        raise TextLimitError("a %TAG directive, which gpunode does not read")
    most, count = largest // _CHARACTERS_OF_A_VALUE, 0
    long_keys = 0
    sizes: dict[str, int] = {}
    around: list[_Collection] = []
    resolve: Any = yaml.resolver.Resolver().resolve
    events: Iterator[Any] = yaml.parse(text, Loader=_loader(""))
    with _refusals():
        for event in events:
            kind, line = type(event), event.start_mark.line + 1
            if kind is yaml.SequenceEndEvent or kind is yaml.MappingEndEvent:
                ended = around.pop()
                if ended.anchor is not None:
                    sizes[ended.anchor] = count - ended.before
            if not issubclass(kind, yaml.NodeEvent):
                continue
            lines = around[-1].lines if around and around[-1].at_key else None
            if around and around[-1].lines is not None:
                around[-1].at_key = not around[-1].at_key
            before, count = count, count + (sizes.get(event.anchor, 1) if kind is yaml.AliasEvent else 1)
            if count > most:
                raise TextLimitError(f"more than {most} values, aliases counted as what they repeat", line)
            if kind is yaml.AliasEvent:
                if any(each.anchor == event.anchor for each in around):
                    raise TextLimitError("an alias repeats what it is part of", line)
            elif kind is not yaml.ScalarEvent:
                is_mapping = kind is yaml.MappingStartEvent
                around.append(_Collection(event.anchor, before, {} if is_mapping else None, is_mapping))
                if len(around) > DEEPEST:
                    raise TextLimitError(f"nested deeper than {DEEPEST} levels", line)
            else:
                if event.anchor is not None:
                    sizes[event.anchor] = 1
                plain = event.tag is not None or event.implicit[0]
                if plain and len(event.value) > _LONGEST_NUMBER and _NUMBER.fullmatch(event.value):
                    raise TextLimitError(f"a number of more than {_LONGEST_NUMBER} characters", line)
                if plain and lines is not None and len(event.value) > 18 and _LONG_KEY.fullmatch(event.value):
                    long_keys += 1
                    if long_keys > _MOST_LONG_KEYS:
                        raise TextLimitError(
                            f"more than {_MOST_LONG_KEYS} keys that are numbers of over 18 digits", line
                        )
                if unique and lines is not None:
                    key = event.tag or resolve(yaml.ScalarNode, event.value, event.implicit), event.value
                    if key in lines:
                        raise KeyTwiceError(event.value, (lines[key], line))
                    # Several mappings may be merged, each by a `<<`.
                    if key[0] != "tag:yaml.org,2002:merge":
                        lines[key] = line


@cache
def _loader(kind: str) -> Any:
    import yaml  # late: most commands and nodes need none

    class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
        pass

    if kind == "tolerant":
        Loader.add_multi_constructor("!", lambda loader, suffix, node: None)
    if kind == "kubernetes":
        others = ("tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value")
        Loader.yaml_implicit_resolvers = {
            first: [(tag, pattern) for tag, pattern in resolvers if tag not in others]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }
    return Loader


@contextmanager
def _refusals() -> Iterator[None]:
    """Turn whatever a parser raises into TextError."""
    try:
        yield
    except TextError:
        raise
    except RecursionError:
        raise TextLimitError(f"nested deeper than {DEEPEST} levels") from None
    except MemoryError:
        raise TextLimitError("more than the memory of this process has room for") from None
    except (AttributeError, LookupError, TypeError) as error:
        raise TextError("a value does not fit its tag") from error  # such as `!!bool x`
    except Exception as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        problem = getattr(error, "problem", None) or getattr(error, "context", None) or str(error)
        raise TextError(" ".join(problem.split()), mark.line + 1 if mark else None) from error


def _check_size(text: str | bytes, largest: int) -> None:
    if len(text) > largest:
        raise TextLimitError(f"larger than {largest >> 20} MiB")


def _checked(found: Any, finite: bool = False) -> Any:
    """Return what was read; raise TextLimitError where it is nested too deeply or a number is too large."""
    level = [found]
    for _ in range(DEEPEST + 1):
        below: list[Any] = []
        for each in level:
            kind = type(each)
            if kind is dict:
                below.extend(each.values())
            elif kind is list:
                below.extend(each)
            elif kind is int and each.bit_length() > _MOST_BITS:
                raise TextLimitError(f"a number of more than {_MOST_BITS} bits")
            elif finite and kind is float and not isfinite(each):
                raise TextLimitError("a number that is not finite")
        if not below:
            return found
        level = below
    raise TextLimitError(f"nested deeper than {DEEPEST} levels")


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise KeyTwiceError(key)
        found[key] = value
    return found


_QUANTITY = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+))(?P<unit>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII)
_UNITS = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


def quantity(value: Any) -> Any:
    """Return a quantity as one number's text: `1000m` and 1 are the same; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return value
    match = _QUANTITY.fullmatch(str(value))
    if match is None or len(str(value)) > 40:
        return value
    number, unit = Decimal(match["number"]), match["unit"] or ""
    if unit in _BINARY:
        number *= 1024 ** _BINARY[unit]
    elif unit in _UNITS:
        number = number.scaleb(_UNITS[unit])
    elif unit:
        number = number.scaleb(int(unit[1:]))
    return f"{number.normalize():f}"
