"""Every layout that fits a geometry, and those nearest to one that does not."""

from __future__ import annotations

from functools import lru_cache

from gpunode.components.mig.geometry import Geometry
from gpunode.components.mig.placement import Counts, fit


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
