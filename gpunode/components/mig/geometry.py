"""Where on a GPU the instances of each profile may stand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property

from gpunode.base import tables
from gpunode.base.tables.driver_versions import MigProduct
from gpunode.settings.mig_parted.document import Profile, parse_profile


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

    @cached_property
    def name(self) -> str:
        """Return the profile's name."""
        return str(self.profile)


@dataclass(frozen=True)
class Geometry:
    """Hold every profile of a GPU, those of most memory first, and (attribute, how many instances with it fit)."""

    spots: tuple[Spot, ...]
    instances_with: tuple[tuple[str, int], ...]

    def __hash__(self) -> int:
        """Return a hash that is reckoned once: every search is remembered by its geometry."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.spots, self.instances_with))

    @cached_property
    def memory_slices(self) -> int:
        """Return the length of the memory axis."""
        return max(start + spot.size for spot in self.spots for start in spot.starts)

    @cached_property
    def compute_slices(self) -> int:
        """Return how many compute slices the GPU has: those of its largest profile."""
        return max(spot.profile.slices for spot in self.spots)


def mask(start: int, size: int) -> int:
    """Return the memory slices from `start` on as bits."""
    return ((1 << size) - 1) << start


def geometry_of(spots: Iterable[Spot]) -> Geometry:
    """Return the geometry of a GPU with these profiles."""
    limits = tuple(sorted(tables.mig().instances_with.items()))
    every = sorted(spots, key=lambda spot: (-spot.size, -spot.profile.slices, spot.name))

    def blocked(start: int, size: int) -> int:
        """Count the placements that are lost by this one."""
        return sum(bool(mask(start, size) & mask(other, spot.size)) for spot in every for other in spot.starts)

    def preferred(spot: Spot) -> Spot:
        starts = sorted(spot.starts, key=lambda start: (blocked(start, spot.size), -start))
        return replace(spot, starts=tuple(starts))

    return Geometry(tuple(map(preferred, every)), limits)


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
    return geometry_of(spots)


def _shapes(product: MigProduct) -> Iterator[tuple[Profile, str]]:
    """Yield each profile of a product with its shape: of two plain ones with as many slices, one has double memory."""
    plain: dict[int, int] = {}
    for profile in sorted(map(parse_profile, product.profiles), key=lambda each: each.gigabytes):
        shape = f"{profile.slices}g" + "".join(f"+{attribute}" for attribute in sorted(profile.attributes))
        if not profile.attributes and plain.setdefault(profile.slices, profile.gigabytes) != profile.gigabytes:
            shape += " double memory"
        yield profile, shape
