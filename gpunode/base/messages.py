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
from types import MappingProxyType
from typing import ClassVar, NewType

# Between cause and remedy, where one text has both.
REMEDY = ". Remedy: "
_BEHIND = re.compile(r" \[([a-z0-9-]+\.[a-z0-9-]+)\]$")
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
    cause, found, remedy = text.partition(REMEDY)
    return cause, remedy if found else None


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
