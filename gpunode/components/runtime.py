"""The change of a container runtime's configuration as data, whichever runtime it is; who carries it out is a node.

A runtime with a daemon is one more module, beside those of containerd, docker and CRI-O, that returns these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# What brings a daemon to its files: `nothing` where it already does what they say.
Act = Literal["restart", "reload", "nothing"]


@dataclass(frozen=True)
class WrittenFile:
    """Hold a file as it is to be; text None: it is to go."""

    path: str
    text: str | None


@dataclass(frozen=True)
class RuntimeChange:
    """Hold what is to be changed, and how it is proven.

    files: in the order in which they are put in place; none where the daemon alone lags behind
    staged: the text that the program's own check reads before any file is in its place; None: nothing to check
    expected: `KEY=VALUE` lines that the program must then say of itself
    act: what the daemon needs
    """

    files: tuple[WrittenFile, ...]
    staged: str | None
    expected: tuple[str, ...]
    act: Act
