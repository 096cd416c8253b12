"""Where on a GPU the instances of each profile may stand: from the table, or from the GPU's own list."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from gpunode import tables
from gpunode.mig.profile import Profile, parse_profile
from gpunode.reading import ParseError

_PLACEMENTS = re.compile(
    r"GPU\s+(?P<gpu>\d+) Profile ID\s+(?P<profile>\d+) Placements? ?: ?\{(?P<starts>\d+(?:,\d+)*)\}:(?P<size>\d+)",
    re.ASCII,
)


@dataclass(frozen=True)
class Spot:
    """Hold one profile of a GPU: where an instance of it may start, how many memory slices it takes, how many fit.

    `starts` are in the order in which they are tried: those first that leave most room for other profiles.
    """

    profile: Profile
    starts: tuple[int, ...]
    size: int
    maximum: int
    profile_id: int

    @property
    def name(self) -> str:
        """Return the profile's name."""
        return str(self.profile)


@dataclass(frozen=True)
class Geometry:
    """Hold every profile of a GPU, those of most memory first, and attribute -> how many instances with it fit."""

    spots: tuple[Spot, ...]
    instances_with: tuple[tuple[str, int], ...] = ()

    def __hash__(self) -> int:
        """Return a hash that is reckoned once: every search is remembered by its geometry."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.spots, self.instances_with))

    @property
    def memory_slices(self) -> int:
        """Return the length of the memory axis."""
        return max(start + spot.size for spot in self.spots for start in spot.starts)

    @property
    def compute_slices(self) -> int:
        """Return how many compute slices the GPU has: those of its largest profile."""
        return max(spot.profile.slices for spot in self.spots)

    def spot(self, name: str) -> Spot:
        """Return the profile of that name; KeyError if the GPU has none."""
        for spot in self.spots:
            if spot.name == name:
                return spot
        raise KeyError(name)

    def with_placements(self, own: Mapping[int, tuple[tuple[int, ...], int]]) -> Geometry:
        """Return the geometry by the GPU's own list, profile id -> (starts, size); what it lacks is not there."""
        spots = (
            replace(spot, starts=own[spot.profile_id][0], size=own[spot.profile_id][1])
            for spot in self.spots
            if spot.profile_id in own
        )
        return _ordered(spots, self.instances_with)


def mask(start: int, size: int) -> int:
    """Return the memory slices from `start` on as bits."""
    return ((1 << size) - 1) << start


def _ordered(spots: Iterable[Spot], instances_with: tuple[tuple[str, int], ...]) -> Geometry:
    every = sorted(spots, key=lambda spot: (-spot.size, -spot.profile.slices, spot.name))

    def blocked(start: int, size: int) -> int:
        """Count the placements that are lost by this one."""
        return sum(bool(mask(start, size) & mask(other, spot.size)) for spot in every for other in spot.starts)

    def preferred(spot: Spot) -> Spot:
        starts = sorted(spot.starts, key=lambda start: (blocked(start, spot.size), -start))
        return replace(spot, starts=tuple(starts))

    return Geometry(tuple(map(preferred, every)), instances_with)


@cache
def product_geometry(name: str) -> Geometry | None:
    """Return a product's geometry by the table; None where nobody has verified it. KeyError: no such product."""
    product = tables.mig().products[name]
    shapes = {row.shape: row for row in tables.mig().geometries.get(product.geometry, ())}
    if not shapes:
        return None
    spots = []
    for profile, shape in _shapes(product):
        row = shapes[shape]
        spots.append(Spot(profile, row.starts, row.size, product.profiles[str(profile)], row.profile_id))
    return _ordered(spots, tuple(sorted(tables.mig().instances_with.items())))


def _shapes(product: tables.MigProduct) -> Iterator[tuple[Profile, str]]:
    """Yield each profile of a product with its shape: of two plain ones with as many slices, one has double memory."""
    plain: dict[int, int] = {}
    for profile in sorted(map(parse_profile, product.profiles), key=lambda each: each.gigabytes):
        shape = f"{profile.slices}g" + "".join(f"+{attribute}" for attribute in sorted(profile.attributes))
        if not profile.attributes and plain.setdefault(profile.slices, profile.gigabytes) != profile.gigabytes:
            shape += " double memory"
        yield profile, shape


def parse_placements(lines: Iterable[str]) -> dict[int, dict[int, tuple[tuple[int, ...], int]]]:
    """Parse `nvidia-smi mig -lgipp`: GPU index -> profile id -> (starts, size); raise ParseError."""
    found: dict[int, dict[int, tuple[tuple[int, ...], int]]] = {}
    for line in filter(None, map(str.strip, lines)):
        match = _PLACEMENTS.fullmatch(line)
        if match is None:
            raise ParseError(f"not a placement of nvidia-smi mig -lgipp: {line[:120]!r}")
        starts = tuple(map(int, match["starts"].split(",")))
        found.setdefault(int(match["gpu"]), {})[int(match["profile"])] = starts, int(match["size"])
    return found
