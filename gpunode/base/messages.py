"""Every message that has a code, declared once next to the code that raises it; `gpunode explain` prints it.

A declaration registers itself when its module is imported. The code of a finding has its component and what it is
about: `driver.loaded-module`. A name that varies, such as the path of a file, is no part of it: there are few codes,
and a metric may be labelled by them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from shlex import quote
from types import MappingProxyType
from typing import ClassVar, NewType

from gpunode.base.folding import LONGEST, shortened
from gpunode.base.terminal import printable

# Between cause and remedy, where one text has both.
REMEDY = ". Remedy: "
CODE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
_BEHIND = re.compile(rf" \[({CODE.pattern})\]$")
_NO_WORD = re.compile(r"[^a-z0-9]+")


def slug(text: str) -> str:
    """Return a text as a part of a code: lower-case words with hyphens between them."""
    return _NO_WORD.sub("-", text.lower().replace("'s", "")).strip("-")


def with_code(text: str, code: str) -> str:
    """Return a message with its code at its end, of several lines behind the last: `TEXT [CODE]`.

    It is the one form for all messages: what to do comes first, and what looks it up stands apart. No sentence is
    parted by it, such as `3 mistakes:` with the list below.
    """
    return f"{text.rstrip()} [{code}]"


def parted(text: str) -> tuple[str, str | None]:
    """Return a message and the code that `with_code` put at its end; None where there is none."""
    found = _BEHIND.search(text)
    return (text, None) if found is None else (text[: found.start()], found[1])


def split_remedy(text: str) -> tuple[str, str | None]:
    """Return (cause, remedy) of a text, the remedy None where it names none."""
    # gpunode's own is the last: the cause may have words of a node.
    cause, found, remedy = text.rpartition(REMEDY)
    return (cause, remedy) if found else (text, None)


# What `shortened` writes of the middle that it leaves out.
_NOTE = 100
# A word of a value in a command, as a shell reads it: no option, and nothing that a shell acts on.
_WORD = r"(?:(?!-)[\w@%+=:,./~-]+|'[^'`]*')"


def as_data(text: str) -> str:
    """Return what may come from a node as one line of printed characters, without backquotes, and of limited length."""
    if "`" not in text and text.isprintable() and len(text) <= LONGEST:
        return text
    return _in_a_line(text).replace("`", "'")


def _in_a_line(text: str) -> str:
    return printable(shortened(text) if len(text) > LONGEST + _NOTE else text).replace("\n", " ")


def as_remedy(text: str) -> str:
    """Return a remedy as `as_data` does, but with the commands of data/commands.yaml between backquotes."""
    return _commands().sub(lambda found: found[0] if found[1] else "'", _in_a_line(text))


def filled(remedy: str, values: Mapping[str, str]) -> str:
    """Return a declared remedy with values: in a command between backquotes each is one word of the shell's."""
    plain = {name: as_data(value) for name, value in values.items()}
    quoted = {name: value and quote(value) for name, value in plain.items()}
    return "`".join(part.format_map(quoted if at % 2 else plain) for at, part in enumerate(remedy.split("`")))


def commands_of(remedy: str | None) -> tuple[str, ...]:
    """Return the commands that a remedy names: of data/commands.yaml, with values that no shell acts on."""
    return tuple(dict.fromkeys(found[1] for found in _commands().finditer(remedy or "") if found[1]))


@cache
def _commands() -> re.Pattern[str]:
    # Late: the help of commands needs no table.
    from gpunode.base.tables.reading import content

    known = "|".join(map(re.escape, content("commands.yaml")["commands"]))
    known = re.sub(r"(?<=\\ )\\\{\\\}(?=\\ |;|$|\|)", lambda _: rf"{_WORD}(?: {_WORD})*", known)
    known = known.replace(re.escape('"{}"'), '"[^\'"`]*"')
    return re.compile(f"`({known.replace(re.escape('{}'), _WORD)})`|`", re.ASCII)


def keep_as_data(item: object, *names: str, commands: tuple[str, ...] = ("remedy",)) -> None:
    """Hold these texts of a frozen object as `as_data` returns them, those of `commands` as `as_remedy` does."""
    for name in (*names, *commands):
        if (text := getattr(item, name)) is not None:
            object.__setattr__(item, name, (as_remedy if name in commands else as_data)(text))


# The code of a declared error, caution or mistake: only a declaration makes one.
Code = NewType("Code", str)
FILLED_IN = re.compile(r"\{[^{}]*\}")


class Kind(StrEnum):
    """Name the kinds of messages, in the order in which they are documented."""

    FINDING = "finding"
    REFUSAL = "refusal"
    CAUTION = "caution"
    MISTAKE = "mistake in settings"
    ERROR = "error of a command"


class Scope(StrEnum):
    """Name what a finding is about: one node, or the cluster as a whole."""

    NODE = "node"
    CLUSTER = "cluster"


@dataclass(frozen=True)
class Message:
    """Declare one message.

    summary: one sentence that stands alone; detail: what it means and when it comes
    causes, remedies: those that there are, with {name} for what is known only when it is raised
    exit: what it does to the exit code; source: where the reason is stated
    always: what the page says of every message of the kind
    """

    kind: ClassVar[Kind]
    always: ClassVar[str] = ""
    code: str
    summary: str
    detail: str = ""
    causes: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    exit: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        """Register the declaration; raise ValueError where another one has its code."""
        if _declared.setdefault(self.code, self) != self:
            raise ValueError(f"the code {self.code} is declared twice")

    @property
    def seen(self) -> tuple[str, ...]:
        """Return how texts name it, besides its code."""
        return ()


_declared: dict[str, Message] = {}


def declared() -> Mapping[str, Message]:
    """Return code -> declaration, of the modules that are imported."""
    return MappingProxyType(_declared)


def shown(text: str) -> str:
    """Return a text of a declaration with an ellipsis where something is filled in."""
    return FILLED_IN.sub("…", text).replace("……", "…")


@dataclass(frozen=True)
class Mistake(Message):
    """Declare a mistake in settings."""

    kind = Kind.MISTAKE


@dataclass(frozen=True)
class CommandError(Message):
    """Declare an error with which a command ends."""

    kind = Kind.ERROR


@dataclass(frozen=True)
class CommandCaution(Message):
    """Declare what a person should know though the command goes on."""

    kind = Kind.CAUTION


def mistake(code: str, summary: str, detail: str = "", *, remedy: str, exit: str = "3") -> Code:
    """Declare a mistake in settings, and return its code."""
    return Code(Mistake(code, summary, detail, remedies=(remedy,), exit=exit).code)


def command_error(code: str, summary: str, detail: str = "", *, remedy: str, exit: str = "1") -> Code:
    """Declare an error of a command, and return its code; exit: the exit codes with which commands end by it."""
    return Code(CommandError(code, summary, detail, remedies=(remedy,), exit=exit).code)


def command_caution(code: str, summary: str, detail: str = "", *, remedy: str) -> Code:
    """Declare a caution of a command, which does not change its exit code, and return its code."""
    return Code(CommandCaution(code, summary, detail, remedies=(remedy,), exit="0: it changes none").code)
