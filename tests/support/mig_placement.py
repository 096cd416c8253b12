"""Helpers and data for the tests of mig placement."""

from dataclasses import dataclass

from gpunode.components.mig.change import Instance, Wanted, change
from gpunode.components.mig.geometry import Geometry, Spot, product_geometry
from gpunode.components.mig.placement import Impossible, Placement, feasible, layout_of, place

SEVEN, FOUR = "H100-80GB", "A30-24GB"


def geometry(name: str = SEVEN) -> Geometry:
    found = product_geometry(name)
    assert found is not None
    return found


def spot_of(name: str, profile: str) -> Spot:
    return next(spot for spot in geometry(name).spots if spot.name == profile)


def plain_layouts(name: str) -> list[dict[str, int]]:
    """Return every feasible layout without media extensions."""
    every = (layout_of(geometry(name), layout) for layout in feasible(geometry(name)))
    return [layout for layout in every if not any("+" in profile for profile in layout)]


def placed(product: str, layout: dict[str, int]) -> tuple[Placement, ...] | Impossible:
    """Return where a layout stands, or why it has no place."""
    return place(geometry(product), layout)


def wanted(layout: dict[str, int], name: str = SEVEN) -> list[Wanted]:
    """Return instances of a layout, each with one compute instance of its size."""
    slices = {profile: spot_of(name, profile).profile.slices for profile in layout}
    return [Wanted(profile, (slices[profile],)) for profile, count in layout.items() for _ in range(count)]


@dataclass(frozen=True)
class Planned:
    """Hold a change: PROFILE:START of each instance, what comes in the order in which it is created."""

    kept: list[str]
    destroyed: list[str]
    created: list[str]


def changed(there: list[str], layout: dict[str, int]) -> Planned | Impossible:
    """Return the change of a GPU on which instances are there (PROFILE:START, of whatever profile) to a layout."""
    found = []
    for number, text in enumerate(there):
        profile, start = text.split(":")
        known = [spot for spot in geometry().spots if spot.name == profile]
        size, slices = (known[0].size, known[0].profile.slices) if known else (2, 1)
        found.append(Instance(Placement(int(start), size, profile), (slices,), str(number)))
    plan = change(geometry(), found, wanted(layout))
    if isinstance(plan, Impossible):
        return plan
    kept, destroyed = (sorted(map(str, each)) for each in (plan.kept, plan.destroyed))
    return Planned(kept, destroyed, [str(each) for each in plan.created])
