"""The smallest change from the instances that a GPU has to those that it shall have.

Fewest destroyed, then fewest created: as the goal's number is fixed, both mean that as many as possible stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations

from gpunode.base import tables
from gpunode.components.mig.geometry import Geometry, mask
from gpunode.components.mig.placement import Impossible, Placement, counts, fit, place
from gpunode.settings.mig_parted.document import parse_profile


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


@dataclass(frozen=True, order=True)
class Wanted:
    """Hold a GPU instance that shall be: its profile, and the sizes of its compute instances, largest first."""

    profile: str
    compute: tuple[int, ...]


@dataclass(frozen=True, order=True)
class Instance:
    """Hold a GPU instance with its place; `identity` tells it from others on its GPU (None: it is not there yet)."""

    placement: Placement
    compute: tuple[int, ...]
    identity: str | None = None

    @property
    def desired(self) -> Wanted:
        """Return what it is, wherever it stands."""
        return Wanted(self.placement.profile, tuple(sorted(self.compute, reverse=True)))

    @property
    def memory(self) -> int:
        """Return the memory slices that it takes, as bits."""
        return mask(self.placement.start, self.placement.size)

    def __str__(self) -> str:
        """Return PROFILE:START."""
        return str(self.placement)


@dataclass(frozen=True)
class Change:
    """Hold what stays untouched, what is destroyed, and what is created then, in that order."""

    kept: tuple[Instance, ...]
    destroyed: tuple[Instance, ...]
    created: tuple[Instance, ...]

    @property
    def is_nothing(self) -> bool:
        """Say whether the GPU is as it shall be."""
        return not self.destroyed and not self.created


def change(geometry: Geometry, existing: Iterable[Instance], goal: Iterable[Wanted]) -> Change | Impossible:
    """Return the smallest change that makes `existing` into `goal`, or why `goal` has no placement.

    Only an instance with the wanted profile and the wanted compute instances may stay, where it is. Whatever stands on
    the GPU and is not asked for is destroyed. Creations are in the order of their size, largest first: each has its own
    explicit start, so that every order succeeds, and this one puts the hardest first.
    """
    actual, desired = sorted(existing), Counter(goal)
    layout = Counter(each.profile for each in desired.elements())
    placed = place(geometry, layout)
    if isinstance(placed, Impossible):
        return placed
    # Keeping nothing is the last candidate, and for that the goal has a placement: there is always a first change.
    return next(
        found
        for kept in _candidates(actual, desired)
        if (found := _keeping(kept, geometry, actual, desired)) is not None
    )


def _keeping(
    kept: tuple[Instance, ...], geometry: Geometry, actual: list[Instance], desired: Counter[Wanted]
) -> Change | None:
    """Return the change that leaves `kept` where they are; None if the rest finds no place beside them."""
    rest = desired - Counter(instance.desired for instance in kept)
    occupied = 0
    for instance in kept:
        occupied |= instance.memory
    found = fit(geometry, occupied, counts(geometry, Counter(each.profile for each in rest.elements())))
    if found is None:
        return None
    gone = list(actual)
    for instance in kept:
        gone.remove(instance)
    return Change(kept, tuple(gone), tuple(_created(found, rest)))


def _candidates(actual: list[Instance], desired: Counter[Wanted]) -> Iterator[tuple[Instance, ...]]:
    """Yield what could stay: the most instances first, of equally many those with the most memory."""
    useful = [instance for instance in actual if desired[instance.desired]]
    for number in range(len(useful), -1, -1):
        every = combinations(useful, number)
        fitting = (kept for kept in every if Counter(each.desired for each in kept) <= desired)
        yield from sorted(fitting, key=lambda kept: -sum(each.placement.size for each in kept))


def _created(placements: Iterable[Placement], desired: Counter[Wanted]) -> Iterator[Instance]:
    """Give each placement one of the wanted instances of its profile, its compute instances as they are created."""
    left = sorted(desired.elements())
    for placement in placements:
        chosen = next(each for each in left if each.profile == placement.profile)
        left.remove(chosen)
        slices = parse_profile(chosen.profile).slices
        yield Instance(placement, in_order(slices, chosen.compute) or chosen.compute)
