"""A GPU's own list of profiles and placements, which counts for more than the table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gpunode.base.reading import ParseError
from gpunode.components.mig.geometry import Geometry, Spot, geometry_of
from gpunode.settings.mig_parted.profile import ProfileError, parse_profile

_PROFILE = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+MIG (?P<name>\S+)\s+(?P<id>\d+)\s+(?P<free>\d+)/(?P<total>\d+)\s.*\|", re.ASCII
)
_PLACEMENTS = re.compile(
    r"GPU\s+(?P<gpu>\d+) Profile ID\s+(?P<id>\d+) Placements? ?: ?\{(?P<starts>\d+(?:,\d+)*)\}:(?P<size>\d+)", re.ASCII
)
# Profile id -> (name, how many of it fit), and profile id -> (starts, size).
Profiles = Mapping[int, tuple[str, int]]
Placements = Mapping[int, tuple[tuple[int, ...], int]]


def own_geometry(profiles: Profiles, placements: Placements) -> Geometry:
    """Return the geometry of a GPU by its own lists; raise ParseError where they do not speak of the same profiles."""
    if not profiles or set(profiles) != set(placements):
        listed, placed = sorted(profiles), sorted(placements)
        raise ParseError(f"the GPU lists the profiles {listed}, and placements of {placed}")
    try:
        return geometry_of(
            Spot(parse_profile(name), *placements[number], total, number) for number, (name, total) in profiles.items()
        )
    except ProfileError as error:
        raise ParseError(f"the GPU lists a profile that is none: {error}") from None


def parse_profile_rows(lines: Iterable[str]) -> dict[int, dict[int, tuple[str, int, int]]]:
    """Parse `nvidia-smi mig -lgip`: GPU index -> profile id -> (name, how many more fit now, how many at most).

    Raise ParseError.
    """
    found: dict[int, dict[int, tuple[str, int, int]]] = {}
    for line in filter(None, map(str.strip, lines)):
        if line[0] not in "|+":
            raise ParseError(f"not a profile of nvidia-smi mig -lgip: {line[:120]!r}")
        # Heads, rules and each profile's second row are not of its form.
        if match := _PROFILE.fullmatch(line):
            row = match["name"], int(match["free"]), int(match["total"])
            found.setdefault(int(match["gpu"]), {})[int(match["id"])] = row
    return found


def parse_placements(lines: Iterable[str]) -> dict[int, dict[int, tuple[tuple[int, ...], int]]]:
    """Parse `nvidia-smi mig -lgipp`: GPU index -> profile id -> (starts, size); raise ParseError."""
    found: dict[int, dict[int, tuple[tuple[int, ...], int]]] = {}
    for line in filter(None, map(str.strip, lines)):
        match = _PLACEMENTS.fullmatch(line)
        if match is None:
            raise ParseError(f"not a placement of nvidia-smi mig -lgipp: {line[:120]!r}")
        starts = tuple(map(int, match["starts"].split(",")))
        found.setdefault(int(match["gpu"]), {})[int(match["id"])] = starts, int(match["size"])
    return found
