"""The releases of a program that gpunode knows (releases.yaml), and which versions are newer or impossible.

A version that is newer than all of them is taken for the newest: `versions.row_of` finds its row in any table.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base import versions
from gpunode.base.tables.reading import Row

# The minor release of a span `26.x` that none exceeds.
_ANY = 10**6


@dataclass(frozen=True)
class Releases(Row):
    """The known releases of a program, oldest first, by their first numbers.

    name: the program in messages
    spans: `2.0-2.4`, a single release, or `26.x`: every minor release of that major
    settings: those that hold a version of the program
    """

    name: str
    spans: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @property
    def newest(self) -> str:
        """Return the newest known release."""
        return self.spans[-1].rpartition("-")[2]

    def is_newer(self, version: str | None) -> bool:
        """Return whether a version is newer than all known releases; False where there is none, or it is no version."""
        try:
            return version is not None and self._at(version) > self._bounds()[-1][1]
        except versions.VersionError:
            return False

    def mistake(self, version: str) -> str | None:
        """Return why there is no such version, or gpunode supports none so old; else None. Raise VersionError."""
        at, bounds = self._at(version), self._bounds()
        if at < bounds[0][0]:
            return f"is older than the oldest release of {self.name} that gpunode supports"
        if at > bounds[-1][1] or any(first <= at <= last for first, last in bounds):
            return None
        return f"is no release of {self.name}"

    def _at(self, version: str) -> tuple[int, ...]:
        return versions.first_numbers(version, self.newest.count(".") + 1)

    def _bounds(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        return [(_numbers(span.partition("-")[0], 0), _numbers(span.rpartition("-")[2], _ANY)) for span in self.spans]


def _numbers(release: str, of_any: int) -> tuple[int, ...]:
    return tuple(of_any if part == "x" else int(part) for part in release.split("."))
