"""The releases of a program that gpunode knows (releases.yaml), and where a version is among them.

A version that is newer than all of them is taken for the newest: `versions.row_of` finds its row in any table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from gpunode.base import versions
from gpunode.base.tables.reading import Row

# The minor release of a span `26.x` that none exceeds.
_ANY = 10**6


class Place(StrEnum):
    """Where a version is among the known releases; `never`: between two of them, where no release is."""

    KNOWN = "known"
    NEWER = "newer"
    OLDER = "older"
    NEVER = "never"


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

    def place(self, version: str) -> Place:
        """Return where a version is among the known releases; raise VersionError."""
        at = versions.first_numbers(version, self.newest.count(".") + 1)
        spans = [(_numbers(span.partition("-")[0], 0), _numbers(span.rpartition("-")[2], _ANY)) for span in self.spans]
        if at > spans[-1][1]:
            return Place.NEWER
        if at < spans[0][0]:
            return Place.OLDER
        return Place.KNOWN if any(first <= at <= last for first, last in spans) else Place.NEVER

    def is_newer(self, version: str | None) -> bool:
        """Return whether a version is newer than all known releases; False where there is none, or it is no version."""
        try:
            return version is not None and self.place(version) is Place.NEWER
        except versions.VersionError:
            return False

    def mistake(self, version: str) -> str | None:
        """Return why no program has this version, or gpunode supports none so old; None where one may. As `place`."""
        place = self.place(version)
        if place is Place.OLDER:
            return f"is older than the oldest release of {self.name} that gpunode supports"
        if place is Place.NEVER:
            return f"is no release of {self.name}"
        return None


def _numbers(release: str, of_any: int) -> tuple[int, ...]:
    return tuple(of_any if part == "x" else int(part) for part in release.split("."))
