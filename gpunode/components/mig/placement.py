"""Explicit placements for a layout, or the proof that there are none.

A GPU instance takes memory slices from its start on; two instances may not share one. That decides everything: two
profiles of one shape collide by start and size, whatever their compute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb, prod

from gpunode.components.mig.geometry import Geometry, Spot, mask

# Profile -> how many instances of it.
Layout = Mapping[str, int]
# How many instances of each of a geometry's profiles, in its order.
Counts = tuple[int, ...]


@dataclass(frozen=True, order=True)
class Placement:
    """Hold where an instance stands: memory slices `start` to `start + size - 1`."""

    start: int
    size: int
    profile: str

    def __str__(self) -> str:
        """Return PROFILE:START."""
        return f"{self.profile}:{self.start}"


@dataclass(frozen=True)
class Impossible:
    """Hold why a layout has no placement."""

    reason: str


def counts(geometry: Geometry, layout: Layout) -> Counts:
    """Return a layout in the geometry's order; profiles that the geometry lacks are left out."""
    return tuple(layout.get(spot.name, 0) for spot in geometry.spots)


def layout_of(geometry: Geometry, desired: Counts) -> dict[str, int]:
    """Return profile -> count of what is there at all."""
    return {spot.name: count for spot, count in zip(geometry.spots, desired, strict=True) if count}


def text(layout: Layout) -> str:
    """Return a layout as people write it: `2 x 3g.40gb + 1g.10gb`."""
    parts = (f"{count} x {name}" if count > 1 else name for name, count in layout.items() if count)
    return " + ".join(parts) or "no instance"


def place(geometry: Geometry, layout: Layout) -> tuple[Placement, ...] | Impossible:
    """Return placements for all of a layout, larger ones first, or why there are none."""
    strangers = [name for name, count in layout.items() if count and all(spot.name != name for spot in geometry.spots)]
    if strangers:
        names = ", ".join(spot.name for spot in geometry.spots)
        return Impossible(f"the GPU has no profile {strangers[0]}; it has {names}")
    desired = counts(geometry, layout)
    actual = fit(geometry, 0, desired)
    return _impossible(geometry, desired) if actual is None else actual


@lru_cache(maxsize=65536)
def fit(geometry: Geometry, occupied: int, desired: Counts) -> tuple[Placement, ...] | None:
    """Return placements for `desired` on memory slices not `occupied` (bits); None: every combination collides.

    Too many compute slices, counts above a profile's maximum, and limits by attribute, are None too. They are for the
    whole GPU: instances that occupy slices already are the caller's to count.
    """
    if _compute(geometry, desired) > geometry.compute_slices or _over_a_limit(geometry, desired) is not None:
        return None
    return _search(geometry.spots, 0, occupied, desired)


def _search(spots: tuple[Spot, ...], index: int, occupied: int, desired: Counts) -> tuple[Placement, ...] | None:
    if index == len(spots):
        return ()
    spot = spots[index]
    if not desired[index]:
        return _search(spots, index + 1, occupied, desired)
    for starts in combinations(spot.starts, desired[index]):
        taken = occupied
        for start in starts:
            if taken & mask(start, spot.size):
                break
            taken |= mask(start, spot.size)
        else:
            rest = _search(spots, index + 1, taken, desired)
            if rest is not None:
                return (*(Placement(start, spot.size, spot.name) for start in sorted(starts)), *rest)
    return None


def _compute(geometry: Geometry, desired: Counts) -> int:
    return sum(spot.profile.slices * count for spot, count in zip(geometry.spots, desired, strict=True))


def _over_a_limit(geometry: Geometry, desired: Counts) -> Impossible | None:
    for spot, count in zip(geometry.spots, desired, strict=True):
        if count > spot.maximum:
            return Impossible(f"{text({spot.name: count})}: of {spot.name} the GPU holds {spot.maximum} at most")
    for attribute, most in geometry.instances_with:
        with_it = {
            spot.name: count
            for spot, count in zip(geometry.spots, desired, strict=True)
            if count and attribute in spot.profile.attributes
        }
        if sum(with_it.values()) > most:
            return Impossible(
                f"{text(with_it)}: the GPU holds {most} instance with +{attribute} at most, of whatever size"
            )
    return None


def _impossible(geometry: Geometry, desired: Counts) -> Impossible:
    """Say why: a limit, or else the smallest part that collides in every combination of legal starts."""
    over = _over_a_limit(geometry, desired)
    if over is not None:
        return over
    part = _smallest(geometry, desired)
    layout = layout_of(geometry, part)
    needed = sum(spot.size * count for spot, count in zip(geometry.spots, part, strict=True))
    compute = _compute(geometry, part)
    if compute > geometry.compute_slices:
        why = f"they take {compute} compute slices, and the GPU has {geometry.compute_slices}"
    elif needed > geometry.memory_slices:
        why = f"they take {needed} memory slices, and the GPU has {geometry.memory_slices}"
    else:
        spots = [(spot, count) for spot, count in zip(geometry.spots, part, strict=True) if count]
        tried = prod(comb(len(spot.starts), count) for spot, count in spots)
        legal = "; ".join(
            f"{spot.name} takes {spot.size} from {', '.join(map(str, sorted(spot.starts)))}" for spot, _ in spots
        )
        combinations_tried = "the one combination" if tried == 1 else f"each of the {tried} combinations"
        why = f"{combinations_tried} of legal places overlaps (memory slices: {legal})"
    return Impossible(f"{text(layout)}: {why}")


def _smallest(geometry: Geometry, desired: Counts) -> Counts:
    """Return a part of what cannot be placed of which nothing can be left out: without any one of it, it fits."""
    part = desired
    while True:
        smaller = next((less for less in without_one(part) if fit(geometry, 0, less) is None), None)
        if smaller is None:
            return part
        part = smaller


def without_one(desired: Counts) -> Iterator[Counts]:
    """Yield what is left when one instance is taken away, small profiles first."""
    for index in reversed(range(len(desired))):
        if desired[index]:
            yield (*desired[:index], desired[index] - 1, *desired[index + 1 :])


@lru_cache(maxsize=256)
def feasible(geometry: Geometry) -> tuple[Counts, ...]:
    """Return every layout that can be placed, but for the empty one."""
    empty: Counts = (0,) * len(geometry.spots)
    found = {empty}
    frontier = [empty]
    while frontier:
        grown = {larger for layout in frontier for larger in _with_one_more(layout)} - found
        # What fits still fits with one instance less: nothing is missed by growing from what fits.
        frontier = [layout for layout in grown if fit(geometry, 0, layout) is not None]
        found.update(frontier)
    return tuple(sorted(found - {empty}, reverse=True))


def nearest(geometry: Geometry, desired: Counts, limit: int = 3) -> tuple[Counts, ...]:
    """Return the layouts that fit and differ least from `desired`: fewest instances left out or added in all.

    Among equally near ones those come first that add least, then those that use more memory, then more compute. None of
    them is part of a nearer one.
    """

    def key(layout: Counts) -> tuple[int, int, int, int, Counts]:
        pairs = list(zip(layout, desired, strict=True))
        lacking = sum(max(0, to_be - now) for now, to_be in pairs)
        added = sum(max(0, now - to_be) for now, to_be in pairs)
        used = list(zip(geometry.spots, layout, strict=True))
        memory = sum(spot.size * count for spot, count in used)
        compute = sum(spot.profile.slices * count for spot, count in used)
        return lacking + added, added, -memory, -compute, layout

    chosen: list[Counts] = []
    for layout in sorted(feasible(geometry), key=key):
        if len(chosen) == limit:
            break
        if not any(_within(layout, nearer) for nearer in chosen):
            chosen.append(layout)
    return tuple(chosen)


def _within(layout: Counts, other: Counts) -> bool:
    return all(mine <= theirs for mine, theirs in zip(layout, other, strict=True))


def _with_one_more(layout: Counts) -> tuple[Counts, ...]:
    return tuple((*layout[:index], count + 1, *layout[index + 1 :]) for index, count in enumerate(layout))
