"""What every source of machines comes to: hosts with their connection data, groups, and what was left behind."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from keyword import iskeyword
from typing import Any

from gpunode.base.errors import CodedError
from gpunode.base.folding import folded
from gpunode.base.messages import command_error
from gpunode.fleet.inventory import LimitError

# pyinfra takes a name that begins with @ for a connector, and ssh one that begins with - for an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:%-]*", re.ASCII)
# This machine itself, as pyinfra names it.
LOCAL = "@local"


class KnownError(CodedError):
    """Say why a document cannot be read as a source of machines: what, where, and what to do."""

    code = command_error(
        "init.source-refused", "The document with the machines cannot be used.",
        "It is not JSON, or not the output of the named program. Nothing was written.",
        remedy="`gpunode init --help` has the command that prints it", exit="3",
    )  # fmt: skip


@dataclass(frozen=True)
class KnownHost:
    """Hold a host: its name, its connection data by pyinfra's names, and the hosts that ssh jumps through."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    jump: str | None = None


@dataclass(frozen=True)
class Known:
    """Hold what a source knows.

    source: what it is, for people; groups: name as in the source -> names of its hosts
    notes: what was left behind or is to be looked at -> of which hosts
    user: who logs in to hosts of which the source does not say it; None: whoever runs gpunode
    """

    source: str
    hosts: tuple[KnownHost, ...]
    groups: Mapping[str, tuple[str, ...]]
    notes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    user: str | None = None

    @property
    def told(self) -> tuple[str, ...]:
        """Return a sentence for each note, which begins with the hosts' names."""
        return tuple(f"{folded(hosts)}: {what}" for what, hosts in self.notes.items())


class Notes:
    """Collect what is to be told of hosts; what is the same of many is told once."""

    def __init__(self) -> None:
        self._hosts: dict[str, list[str]] = {}

    def add(self, host: str, what: str) -> None:
        self._hosts.setdefault(what, []).append(host)

    def found(self) -> dict[str, tuple[str, ...]]:
        """Return what is to be told -> of which hosts."""
        return {what: tuple(dict.fromkeys(hosts)) for what, hosts in self._hosts.items()}


def is_name(text: Any) -> bool:
    """Say whether a text is a name or an address that pyinfra and ssh take for one."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def only(known: Known, patterns: Collection[str]) -> Known:
    """Return what is known of the hosts that patterns name: a name, a glob, or a group; raise LimitError."""
    if not patterns:
        return known
    names: set[str] = set()
    for pattern in patterns:
        found = set(known.groups.get(pattern) or (host.name for host in known.hosts if fnmatch(host.name, pattern)))
        if not found:
            raise LimitError(pattern, known.source, known.groups)
        names |= found
    hosts = tuple(host for host in known.hosts if host.name in names)
    dropped = {host.name for host in known.hosts} - names

    def without(found: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        left = {key: tuple(one for one in members if one not in dropped) for key, members in found.items()}
        return {key: members for key, members in left.items() if members}

    return replace(known, hosts=hosts, groups=without(known.groups), notes=without(known.notes))


def python_names(names: Iterable[str], taken: Collection[str]) -> dict[str, str]:
    """Return group -> its name in an inventory of pyinfra's, which is an identifier of Python's; each is another.

    taken: names that mean something there already
    """
    names = tuple(names)
    found: dict[str, str] = {}
    # A group that can keep its name does, whatever another one would be called.
    kept = {name for name in names if name not in taken and _is_identifier(name)}
    used = set(taken) | kept
    for name in names:
        if name in kept:
            found[name] = name
            continue
        base = re.sub(r"\W", "_", name, flags=re.ASCII).strip("_") or "group"
        base = base if _is_identifier(base) else f"group_{base}"
        numbered = (f"{base}_{number}" for number in range(2, len(used) + 4))
        own = next(each for each in (base, f"{base}_hosts", *numbered) if each not in used)
        used.add(own)
        found[name] = own
    return found


def _is_identifier(name: str) -> bool:
    # pyinfra reads no group whose name begins with an underscore.
    return name.isascii() and name.isidentifier() and not iskeyword(name) and not name.startswith("_")
