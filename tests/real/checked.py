"""What a check of one distribution's repository found, whatever the family of its package manager."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpunode.base.tables.sources import Distribution
from tests.real.asking import ManagerFailed


@dataclass
class Checked:
    """Hold which sets resolve, what does not, what moved since the tables were written, and what was not reached.

    Each is lines for people. `problems` are failures; `moved` is told and fails nothing. `beyond` says why there is
    nothing that this check could read.
    """

    resolved: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    moved: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)
    beyond: list[str] = field(default_factory=list)

    @property
    def reached(self) -> bool:
        """Say whether anything of the repository was read."""
        return bool(self.resolved or self.problems)

    def lines(self, where: str) -> list[str]:
        """Return what a person reads of it."""
        told = [f"{where}: {len(self.resolved)} sets of packages resolve"] if self.resolved else []
        told += [f"{where}: nothing to read: {line}" for line in self.beyond]
        told += [f"{where}: not reached: {line}" for line in self.unreached]
        told += [f"{where}: does not resolve: {line}" for line in self.problems]
        return told + [f"{where}: moved: {line}" for line in self.moved]


def failed(error: ManagerFailed, moved: Sequence[str] = ()) -> Checked:
    """Return what a package manager that could not read a repository found: silence, or a fault of the repository's."""
    words = str(error)[:400]
    told = {"unreached": [words]} if error.is_silence else {"problems": [f"it cannot be read: {words}"]}
    return Checked(moved=list(moved), **told)


# distribution, its repository (own, cuda, toolkit, docker), an empty folder -> what was found
Check = Callable[[Distribution, str, Path], Checked]
REPOSITORIES = ("own", "cuda", "toolkit", "docker")
