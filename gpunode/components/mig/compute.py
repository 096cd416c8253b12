"""In which order compute instances are created in a GPU instance, so that each finds its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from gpunode.base import tables
from gpunode.components.mig.geometry import mask


def sizes_in(slices: int) -> tuple[int, ...]:
    """Return the sizes of the compute instances that a GPU instance of so many slices may hold."""
    return tuple(_starts(slices))


def in_order(slices: int, sizes: Iterable[int]) -> tuple[int, ...] | None:
    """Return compute instances of those sizes in the order in which to create them; None: they have no room together.

    nvidia-smi is told no place for one, and takes the first that is free. Larger ones come first as far as that goes:
    in a GPU instance of 7 slices 3, 2, 2 leaves the last one no place, and 2, 3, 2 does not.
    """
    return _in_order(slices, tuple(sorted(sizes, reverse=True)), 0)


@cache
def _in_order(slices: int, left: tuple[int, ...], taken: int) -> tuple[int, ...] | None:
    if not left:
        return ()
    for size in dict.fromkeys(left):
        free = (mask(start, size) for start in _starts(slices).get(size, ()))
        place = next((place for place in free if not place & taken), None)
        if place is None:
            continue
        number = left.index(size)
        rest = _in_order(slices, (*left[:number], *left[number + 1 :]), taken | place)
        if rest is not None:
            return (size, *rest)
    return None


def _starts(slices: int) -> Mapping[int, Sequence[int]]:
    return tables.mig().compute_starts.get(slices, {slices: (0,)})
