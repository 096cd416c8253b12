"""What is wrong with a declaration, or odd in it: where (file and key path), what, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpunode.base.errors import CodedError
from gpunode.base.messages import Code, command_error
from gpunode.base.reading import Reading

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
