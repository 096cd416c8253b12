"""Read YAML and names of profiles as nvidia-mig-parted does: by sigs.k8s.io/yaml, YAML 1.1 handed on as JSON.

PyYAML's own loader differs where it matters: it takes `1:30` for a number and refuses a second document, it knows no
`y` and `n`. A key given twice is refused, where that tool silently takes the last one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import isfinite, isnan

import yaml

from gpunode.base.errors import CodedError
from gpunode.base.messages import Code, command_error
from gpunode.base.reading import Reading

# Numbers as Go's strconv.Atoi takes them, but for signs, which the splitting at + and - leaves none of.
_FIELDS = re.compile(r"(?:(?P<compute>[0-9]+)c\.)?(?P<slices>[0-9]+)g\.(?P<gigabytes>[0-9]+)gb", re.ASCII)
_ATTRIBUTE = re.compile(r"[A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?", re.ASCII)
_LARGEST = 2**63 - 1
WANTED = "Ng.Mgb, Cc.Ng.Mgb, either with +attribute or -attribute after it, such as '3g.40gb' or '1g.10gb+me'"


class ProfileError(ValueError):
    """Say why a text is no name of a profile."""


@dataclass(frozen=True)
class Profile:
    """Hold a profile's name in its parts.

    `compute` is the size of the compute instance, `slices` that of the GPU instance (equal where only one is written),
    `gigabytes` its memory; `attributes` it has (+me), `without` it lacks (-me).
    """

    compute: int
    slices: int
    gigabytes: int
    attributes: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    @property
    def gpu_instance(self) -> Profile:
        """Return the profile of the GPU instance that holds it."""
        return replace(self, compute=self.slices)

    def __str__(self) -> str:
        """Return the name in its shortest form."""
        compute = "" if self.compute == self.slices else f"{self.compute}c."
        has, lacks = ",".join(sorted(self.attributes)), ",".join(sorted(self.without))
        suffix = f"+{has}" if has else f"-{lacks}" if lacks else ""
        return f"{compute}{self.slices}g.{self.gigabytes}gb{suffix}"


def parse_profile(text: str) -> Profile:
    """Return the profile that `text` names; raise ProfileError. The format is nvidia-mig-parted's (go-nvlib)."""
    base, plus, has = text.partition("+")
    if plus and "-" in text:
        raise ProfileError("has both +attributes and -attributes")
    minus, lacks = "", ""
    if not plus:
        base, minus, lacks = text.partition("-")
    found = _FIELDS.fullmatch(base)
    if found is None:
        raise ProfileError(f"must be {WANTED}")
    numbers = [int(found[name]) for name in ("slices", "gigabytes")]
    numbers.append(int(found["compute"] or found["slices"]))
    if max(numbers) > _LARGEST:
        raise ProfileError("has a number that is too large")
    slices, gigabytes, compute = numbers
    return Profile(
        compute,
        slices,
        gigabytes,
        _attributes(has) if plus else frozenset(),
        _attributes(lacks) if minus else frozenset(),
    )


def _attributes(text: str) -> frozenset[str]:
    every = text.split(",")
    for attribute in every:
        if _ATTRIBUTE.fullmatch(attribute) is None:
            raise ProfileError(
                f"{shown(attribute)} is no attribute; it must be letters, digits and dots, a letter first"
            )
    if len(set(every)) < len(every):
        raise ProfileError("names an attribute twice")
    return frozenset(every)


_LONGEST = 80
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
DECLARATION = command_error(
    "mig.declaration", "A file of MIG configurations has mistakes.",
    "The file has the form of nvidia-mig-parted. All mistakes are listed, each with its place and the allowed values.",
    remedy="correct each, and check with `gpunode mig check`", exit="3",
)  # fmt: skip


@dataclass(frozen=True)
class KeyPath:
    """Hold the way to a value: `mig-configs.custom[1].mig-devices["3g.40gb"]`."""

    text: str = ""

    def key(self, name: str) -> KeyPath:
        """Return the way to the value of a key."""
        if _PLAIN_KEY.fullmatch(name):
            return KeyPath(f"{self.text}.{name}" if self.text else name)
        return KeyPath(f"{self.text}[{shown(name)}]")

    def item(self, number: int) -> KeyPath:
        """Return the way to an item of a list."""
        return KeyPath(f"{self.text}[{number}]")

    def __str__(self) -> str:
        """Return the way, or `(document)` for the whole of it."""
        return self.text or "(document)"


@dataclass(frozen=True)
class Mistake(Reading):
    """Hold one mistake or oddity: where, the value as read, what about it, and what is allowed.

    code: what `gpunode explain` knows it by
    """

    path: str
    value: str | None
    message: str
    allowed: tuple[str, ...] = ()
    code: Code = DECLARATION

    def __str__(self) -> str:
        """Return `PATH = VALUE: MESSAGE; allowed: A, B`."""
        value = "" if self.value is None else f" = {self.value}"
        allowed = f"; allowed: {', '.join(map(word, self.allowed))}" if self.allowed else ""
        return f"{self.path}{value}: {self.message}{allowed}"


class DeclarationError(CodedError):
    """Hold every mistake of a declaration; its text is the one message that lists them."""

    code = DECLARATION

    def __init__(self, source: str, mistakes: Iterable[Mistake]) -> None:
        """Take what the declaration is called (its file), and the mistakes in the order in which they are listed."""
        self.source = source
        self.mistakes = tuple(mistakes)
        count = len(self.mistakes)
        head = f"{source}: refused, {count} mistake{'' if count == 1 else 's'}:"
        super().__init__("\n".join([head, *(f"  {mistake}" for mistake in self.mistakes)]))


def word(name: str) -> str:
    """Return a name as it is where it is one word of printable ASCII, else quoted."""
    return name if name.isascii() and name.isprintable() and 0 < len(name) <= _LONGEST else shown(name)


def shown(value: object) -> str:
    """Return a value as one short line of printable ASCII."""
    text = ascii(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


# What JSON can hold, with keys that are strings.
Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]

LARGEST_FILE = 1024 * 1024
# Counted with every repetition by an alias, so that a small file cannot stand for a huge document.
_MOST_VALUES = 100_000
_LARGEST_NUMBER = 2**64
_PLAIN = "gpunode:plain"
_YAML = "tag:yaml.org,2002:"
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_INFINITE = {f"{sign}.{word}" for sign in ("", "+", "-") for word in ("inf", "Inf", "INF")} | {".nan", ".NaN", ".NAN"}
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|0[0-7]*|[1-9][0-9]*)", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_RESOLVED = {"bool": bool, "int": int, "float": float}


class _Loader(yaml.SafeLoader):
    """Tell a plain scalar, whose kind is to be found, from a quoted one."""

    def resolve(self, kind: type[yaml.Node], value: str | None, implicit: object) -> str:
        if kind is yaml.ScalarNode:
            return _PLAIN if isinstance(implicit, tuple) and implicit[0] else f"{_YAML}str"
        return f"{_YAML}{'seq' if kind is yaml.SequenceNode else 'map'}"

    def scan_directive(self) -> yaml.DirectiveToken:
        # go-yaml 2, which is below that tool's library, knows %YAML 1.1 and %TAG, and nothing else.
        token = super().scan_directive()
        if token.name != "TAG" and (token.name, token.value) != ("YAML", (1, 1)):
            mark = token.start_mark
            line = mark.buffer[mark.pointer :].splitlines()[0].partition(" #")[0].strip()
            message = f"is a directive in line {mark.line + 1} that NVIDIA's programs refuse, which read YAML 1.1"
            raise _Stop(Mistake("(document)", shown(line), f"{message}; leave it out"))
        return token


class _Reader:
    """Turn nodes into values, collecting mistakes with their paths."""

    def __init__(self, unique: bool) -> None:
        self.mistakes: list[Mistake] = []
        self._unique = unique
        self._values = 0
        self._open: set[int] = set()

    def read(self, node: yaml.Node, path: KeyPath) -> Value:
        self._values += 1
        if self._values > _MOST_VALUES:
            message = f"the document holds more than {_MOST_VALUES} values, repetitions by aliases included"
            raise _Stop(Mistake(str(path), None, message))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        if id(node) in self._open:
            raise _Stop(Mistake(str(path), None, "an alias repeats what it is part of"))
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self.read(item, path.item(number)) for number, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.Node, path: KeyPath) -> dict[str, Value]:
        found: dict[str, Value] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            if _merges(key_node):
                for inherited in self._inherited(value_node, path):
                    found.update(inherited)
                continue
            key = self._key(key_node, path)
            if key is None:
                continue
            line = key_node.start_mark.line + 1
            if key in lines and self._unique:
                message = f"the key is given twice, in lines {lines[key]} and {line}; remove one of the two"
                self.mistakes.append(Mistake(str(path.key(key)), None, message))
            lines[key] = line
            found[key] = self.read(value_node, path.key(key))
        return found

    def _inherited(self, node: yaml.Node, path: KeyPath) -> Iterator[dict[str, Value]]:
        # Of several the first counts: it is merged last.
        nodes = reversed(node.value) if isinstance(node, yaml.SequenceNode) else [node]
        for each in nodes:
            found = self.read(each, path)
            if isinstance(found, dict):
                yield found
            else:
                self.mistakes.append(Mistake(str(path.key("<<")), shown(found), "only mappings can be merged"))

    def _key(self, node: yaml.Node, path: KeyPath) -> str | None:
        key: Value = None
        if isinstance(node, yaml.ScalarNode):
            key = _resolved(node.value) if node.tag == _PLAIN else self._scalar(node, path)
        if isinstance(key, bool):
            return "true" if key else "false"
        if isinstance(key, int) and not -(2**63) <= key < _LARGEST_NUMBER:
            key = float(key)
        if isinstance(key, float) and not isfinite(key):
            return ".nan" if isnan(key) else ".inf" if key > 0 else "-.inf"
        if key is None or (isinstance(key, int) and key >= 2**63):
            where = f"line {node.start_mark.line + 1}"
            self.mistakes.append(Mistake(str(path), None, f"the key in {where} must be a text or a number"))
            return None
        return f"{key:.8g}" if isinstance(key, float) else str(key)

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Value:
        text: str = node.value
        if node.tag == f"{_YAML}binary":
            try:
                return base64.b64decode(text, validate=True).decode("utf-8", "replace")
            except (binascii.Error, ValueError):
                self.mistakes.append(Mistake(str(path), shown(text), "is no base64"))
                return None
        kind = node.tag.removeprefix(_YAML)
        if node.tag != _PLAIN and kind not in ("null", *_RESOLVED):
            return text
        value = _resolved(text)
        if isinstance(value, int) and abs(value) >= _LARGEST_NUMBER:
            self.mistakes.append(Mistake(str(path), shown(text), "is a number that is too large"))
            return None
        if node.tag != _PLAIN:
            desired = _RESOLVED.get(kind, type(None))
            if type(value) is not desired and not (desired is float and type(value) is int):
                self.mistakes.append(Mistake(str(path), shown(text), f"is no {kind}, which its tag says"))
        if isinstance(value, float) and text in _INFINITE:
            self.mistakes.append(Mistake(str(path), text, "is no number that JSON knows"))
        return value


class _Stop(Exception):
    """Carry the mistake after which reading on makes no sense."""

    def __init__(self, mistake: Mistake) -> None:
        super().__init__(str(mistake))
        self.mistake = mistake


def _merges(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.value == "<<" and node.tag in (_PLAIN, f"{_YAML}merge")


def _resolved(text: str) -> bool | int | float | str | None:
    """Return what a plain scalar means."""
    if text in _WORDS:
        return _WORDS[text]
    if text in _INFINITE:
        return float(text.replace(".", ""))
    if text[:1] not in "+-.0123456789":
        return text
    plain = text.replace("_", "") if text[:1] != "." else text
    if _INTEGER.fullmatch(plain):
        # Python refuses to read thousands of digits; so many say no more than these.
        return _integer(plain[:100])
    if _FLOAT.fullmatch(plain) and isfinite(float(plain)):
        return float(plain)
    return text


def _integer(text: str) -> int:
    """Return a whole number in decimal, hexadecimal, binary or octal (`010` and `0o10`), as Go reads it."""
    digits = text.lstrip("+-").lower()
    base = {"0x": 16, "0b": 2, "0o": 8}.get(digits[:2], 8 if digits[:1] == "0" and len(digits) > 1 else 10)
    value = int(digits[2:] if digits[:2] in ("0x", "0b", "0o") else digits, base)
    return -value if text.startswith("-") else value


def read_document(content: str, source: str, *, unique: bool = True) -> Value:
    """Return the first YAML document's value; raise DeclarationError.

    unique: refuse a key that a mapping has twice; else the last one counts
    """
    reader = _Reader(unique)
    try:
        loader = _Loader(content)
        node = loader.get_node() if loader.check_node() else None
        value = None if node is None else reader.read(node, KeyPath())
    except _Stop as stop:
        raise DeclarationError(source, [*reader.mistakes, stop.mistake]) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        message = f"{where}{' '.join(shown(error.problem or 'no YAML')[1:-1].split())}"
        raise DeclarationError(source, [Mistake("(document)", None, f"is no YAML: {message}")]) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        message = shown(" ".join(str(error).split()))[1:-1]
        raise DeclarationError(source, [Mistake("(document)", None, f"is no YAML: {message}")]) from None
    except RecursionError:
        raise DeclarationError(source, [Mistake("(document)", None, "is nested too deeply")]) from None
    if reader.mistakes:
        raise DeclarationError(source, reader.mistakes)
    return value
