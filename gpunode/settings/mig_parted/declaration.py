"""The declaration: nvidia-mig-parted's own file, version v1, accepted and refused as that tool does.

Its parser is Go's JSON decoder behind a YAML reader, with what follows from that: a null stands for the empty value of
whatever was expected, 2.0 is a whole number, keys are told apart by case. We tell every mistake where the tool tells
the first, and where it is.

The configurations that NVIDIA publishes with that tool are a rule rather than a list: every profile as often as it
fits, and one mixture. A name that stands for other profiles on another product (all-1g.10gb: seven on an H100, four
with double memory on an A100 40GB) is by that product's table.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

from gpunode.base import tables
from gpunode.settings.mig_parted.document import (
    LARGEST_FILE,
    DeclarationError,
    KeyPath,
    Mistake,
    ProfileError,
    Value,
    parse_profile,
    read_document,
    shown,
)

VERSION = "v1"
_LARGEST = 2**63 - 1
# Compute slices of the whole GPU -> slices of an instance -> how many.
_BALANCED = {7: {3: 1, 2: 1, 1: 2}, 4: {2: 1, 1: 2}}


@dataclass(frozen=True)
class Entry:
    """Hold what a configuration says of some GPUs.

    `device_filter` are PCI ids (empty: every GPU), `devices` are indices (None: all of them), `mig_devices` is profile,
    as written -> count; None where it is left out. `path` is where it stands.
    """

    path: str
    device_filter: tuple[str, ...]
    devices: tuple[int, ...] | None
    mig_enabled: bool
    mig_devices: Mapping[str, int] | None

    def has_index(self, index: int) -> bool:
        """Say whether it is for the GPU of that index, as far as indices go."""
        return self.devices is None or index in self.devices


@dataclass(frozen=True)
class Declaration:
    """Hold a declaration: its source (a file), and configurations by name."""

    source: str
    configs: Mapping[str, tuple[Entry, ...]]


def read_declaration(file: Path) -> Declaration:
    """Return the declaration in a file; raise DeclarationError with every mistake in it."""
    try:
        with file.open("rb") as opened:
            return load_declaration(opened, str(file))
    except OSError as error:
        raise DeclarationError(str(file), [_unreadable(f"cannot be read: {error.strerror}")]) from None
    except ValueError as error:
        # A name with a null byte.
        raise DeclarationError(shown(str(file)), [_unreadable(f"cannot be read: {error}")]) from None


def load_declaration(opened: BinaryIO, source: str) -> Declaration:
    """Return the declaration in an open file; raise DeclarationError, or OSError where it cannot be read."""
    content = opened.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise DeclarationError(source, [_unreadable(f"is larger than {LARGEST_FILE} bytes")])
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"is no UTF-8: byte {error.start} is {content[error.start]:#04x}"
        raise DeclarationError(source, [_unreadable(message)]) from None
    return parse_declaration(text, source)


def parse_declaration(content: str, source: str) -> Declaration:
    """Return the declaration that a text holds; raise DeclarationError with every mistake in it."""
    value = read_document(content, source)
    parser = _Parser()
    configs = parser.document(value)
    if parser.mistakes:
        raise DeclarationError(source, parser.mistakes)
    return Declaration(source, configs)


def selected(declaration: Declaration, name: str | None) -> str:
    """Return the configuration that is meant: `name`, or the only one there is; raise DeclarationError."""
    path, known = KeyPath("mig-configs"), tuple(declaration.configs)
    if name is None and len(known) > 1:
        message = f"holds {len(known)} configurations; say which one (--config NAME), or --all"
        raise DeclarationError(declaration.source, [Mistake(str(path), None, message, known)])
    if name is None and known:
        return known[0]
    if name is not None and name in declaration.configs:
        return name
    if name is None:
        raise DeclarationError(declaration.source, [Mistake(str(path), None, "there is no configuration in it")])
    message = f"there is no such configuration{_near(name, known)}"
    raise DeclarationError(declaration.source, [Mistake(str(path.key(name)), None, message, known)])


def _unreadable(message: str) -> Mistake:
    return Mistake("(document)", None, message)


def _near(name: str, allowed: Collection[str]) -> str:
    found = difflib.get_close_matches(name, list(allowed), n=1)
    return f"; did you mean {shown(found[0])}?" if found else ""


def _kind(value: Value) -> str:
    names = {bool: "true or false", str: "a text", list: "a list", dict: "a mapping", type(None): "null"}
    return names.get(type(value), "a number")


class _Parser:
    """Turn a document's values into entries, collecting mistakes."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []

    def document(self, value: Value) -> dict[str, tuple[Entry, ...]]:
        # An empty file is an empty declaration.
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong(KeyPath(), value, f"must be a mapping with `version` and `mig-configs`, not {_kind(value)}")
            return {}
        if "version" not in value:
            self._wrong(KeyPath("version"), message=f"is missing; it must be {VERSION!r}")
        elif value["version"] != VERSION:
            self._wrong(KeyPath("version"), value["version"], f"must be {VERSION!r}")
        self._unknown(value, KeyPath(), ("version", "mig-configs"))
        return self._configs(value["mig-configs"], KeyPath("mig-configs")) if "mig-configs" in value else {}

    def _configs(self, value: Value, path: KeyPath) -> dict[str, tuple[Entry, ...]]:
        if not isinstance(value, dict) or not value:
            self._wrong(path, value, "must be a mapping with at least one configuration")
            return {}
        found = {}
        for name, entries in value.items():
            where = path.key(name)
            if not isinstance(entries, list) or not entries:
                self._wrong(where, entries, "must be a list with at least one entry")
                continue
            found[name] = tuple(
                entry for number, each in enumerate(entries) if (entry := self._entry(each, where.item(number)))
            )
        return found

    def _entry(self, value: Value, path: KeyPath) -> Entry | None:
        if not isinstance(value, dict):
            self._wrong(path, value, f"must be a mapping with `devices` and `mig-enabled`, not {_kind(value)}")
            return None
        for name in ("devices", "mig-enabled"):
            if name not in value:
                self._wrong(path.key(name), message="is missing")
        self._unknown(value, path, ("device-filter", "devices", "mig-enabled", "mig-devices"))
        enabled = self._enabled(value.get("mig-enabled"), path.key("mig-enabled"))
        return Entry(
            path=str(path),
            device_filter=self._filter(value.get("device-filter"), path.key("device-filter")),
            devices=self._devices(value["devices"], path.key("devices")) if "devices" in value else (),
            mig_enabled=bool(enabled),
            mig_devices=self._mig_devices(value.get("mig-devices"), enabled, path.key("mig-devices")),
        )

    def _enabled(self, value: Value, path: KeyPath) -> bool | None:
        """Return whether MIG is on; None where nobody can tell."""
        if value is None or isinstance(value, bool):
            return bool(value)
        self._wrong(path, value, f"must be true or false, not {_kind(value)}")
        return None

    def _filter(self, value: Value, path: KeyPath) -> tuple[str, ...]:
        if value is None or value == "":
            return ()
        if isinstance(value, str):
            return (value,)
        if not isinstance(value, list):
            self._wrong(path, value, f"must be a text such as '0x233010DE', or a list of such, not {_kind(value)}")
            return ()
        found = []
        for number, item in enumerate(value):
            if item is None or isinstance(item, str):
                found.append(item or "")
            else:
                self._wrong(path.item(number), item, "must be a text: quote it")
        return tuple(found)

    def _devices(self, value: Value, path: KeyPath) -> tuple[int, ...] | None:
        if value == "all":
            return None
        if not isinstance(value, list):
            self._wrong(path, value, f"must be `all` or a list of GPU indices, not {_kind(value)}", ("all", "[0, 1]"))
            return ()
        return tuple(self._whole(item, path.item(number)) for number, item in enumerate(value))

    def _mig_devices(self, value: Value, enabled: bool | None, path: KeyPath) -> dict[str, int] | None:
        if value is None:
            if enabled:
                self._wrong(path, message="is missing, and mig-enabled is true; {} asks for no instance")
            return None
        if not isinstance(value, dict):
            self._wrong(path, value, f"must be a mapping of profile to count, not {_kind(value)}")
            return None
        before = len(self.mistakes)
        found = {}
        for profile, count in value.items():
            where = path.key(profile)
            try:
                parse_profile(profile)
            except ProfileError as error:
                self._wrong(where, message=f"is no profile: {error}")
            found[profile] = self._whole(count, where)
            if found[profile] < 0:
                self._wrong(where, count, "a count must be 0 or more")
        if found and len(self.mistakes) == before:
            if not any(found.values()):
                self._wrong(path, message="every count is 0; {} asks for no instance")
            elif enabled is False:
                self._wrong(path, message="asks for instances, and mig-enabled is false")
        return found

    def _whole(self, value: Value, path: KeyPath) -> int:
        """Return a whole number, which may be written 2.0; null is 0."""
        if value is None:
            return 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not float(value).is_integer():
            self._wrong(path, value, "must be a whole number")
            return 0
        if not -_LARGEST - 1 <= value <= _LARGEST or (isinstance(value, float) and abs(value) >= 1e21):
            self._wrong(path, value, "is a number that is too large")
            return 0
        return int(value)

    def _unknown(self, value: Mapping[str, Value], path: KeyPath, allowed: tuple[str, ...]) -> None:
        for name in value:
            if name not in allowed:
                self._wrong(path.key(name), message=f"is an unknown key{_near(name, allowed)}", allowed=allowed)

    def _wrong(self, path: KeyPath, value: object = ..., message: str = "", allowed: tuple[str, ...] = ()) -> None:
        self.mistakes.append(Mistake(str(path), None if value is ... else shown(value), message, allowed))


@cache
def published(product: str) -> Declaration:
    """Return a product's published configurations; KeyError: no such product."""
    profiles = tables.mig().products[product].profiles
    layouts: dict[str, Mapping[str, int] | None] = {"all-disabled": None, "all-enabled": {}}
    layouts |= {f"all-{profile.replace('+', '.')}": {profile: most} for profile, most in profiles.items()}
    layouts["all-balanced"] = balanced(product)
    source = f"published configurations of {product}"
    return Declaration(source, MappingProxyType({name: _entries(name, layout) for name, layout in layouts.items()}))


def balanced(product: str) -> dict[str, int]:
    """Return the one mixture that is published: of plain profiles, those with least memory."""
    plain: dict[int, str] = {}
    for profile in sorted(map(parse_profile, tables.mig().products[product].profiles), key=lambda each: each.gigabytes):
        if not profile.attributes and not profile.without:
            plain.setdefault(profile.slices, str(profile))
    return {plain[slices]: count for slices, count in _BALANCED[max(plain)].items()}


def known_names() -> tuple[str, ...]:
    """Return every name that is published for any product."""
    return tuple(dict.fromkeys(name for product in tables.mig().products for name in published(product).configs))


def _entries(name: str, layout: Mapping[str, int] | None) -> tuple[Entry, ...]:
    return (Entry(f"{name}[0]", (), None, layout is not None, layout),)
