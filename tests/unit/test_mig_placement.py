"""Where MIG instances go: explicit placements, proofs that there are none, and the nearest layouts that fit."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.placement import Impossible, counts, feasible, fit, layout_of, nearest, place
from tests.support.mig_placement import FOUR, SEVEN, geometry, plain_layouts
from tests.support.simulated_mig import PROFILE_IDS, TABLE, Refused, SimulatedGpu

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(("name", "plain"), [(SEVEN, 77), (FOUR, 9)])
def test_every_layout_is_placed_as_a_gpu_takes_it(name: str, plain: int) -> None:
    assert len(plain_layouts(name)) == plain
    for layout in (layout_of(geometry(name), each) for each in feasible(geometry(name))):
        gpu = SimulatedGpu(name)
        placed = place(geometry(name), layout)
        assert not isinstance(placed, Impossible)
        for placement in placed:
            gpu.create(placement.profile, placement.start)
        assert gpu.layout() == layout


@pytest.mark.parametrize("name", [SEVEN, FOUR])
def test_what_is_called_impossible_is_so_wherever_instances_are_put(name: str) -> None:
    """Compare with brute force that knows no planner: every combination of starts on the simulated GPU."""
    plain = [profile for profile in PROFILE_IDS[name] if "+" not in profile]
    rows = {row["profile_id"]: row["starts"] for row in TABLE["geometries"][TABLE["products"][name]["geometry"]]}
    reachable: set[tuple[int, ...]] = set()
    # Depth first through what a GPU accepts, by occupied slots alone.
    frontier: list[frozenset[tuple[str, int]]] = [frozenset()]
    seen = set(frontier)
    while frontier:
        there = frontier.pop()
        reachable.add(tuple(sum(name == profile for name, _ in there) for profile in plain))
        gpu = SimulatedGpu(name)
        for profile, start in there:
            gpu.create(profile, start)
        for profile in plain:
            for start in rows[PROFILE_IDS[name][profile]]:
                try:
                    gpu.create(profile, start)
                except Refused:
                    continue
                gpu.destroy(profile, start)
                more = there | {(profile, start)}
                frontier += [more] if more not in seen else []
                seen.add(more)
    most = TABLE["products"][name]["profiles"]
    for wanted in product(*(range(most[profile] + 1) for profile in plain)):
        layout = dict(zip(plain, wanted, strict=True))
        assert isinstance(place(geometry(name), layout), Impossible) == (wanted not in reachable), layout


def test_two_profiles_of_one_shape_collide_by_start_and_size() -> None:
    # Slots 0 to 3 and 6 to 7 taken: what is left at 4 is for one of the two.
    one, other, both = {"1g.20gb": 1}, {"2g.20gb": 1}, {"1g.20gb": 1, "2g.20gb": 1}
    found = [fit(geometry(), 0b11001111, counts(geometry(), each)) for each in (one, other, both)]
    assert [each is not None for each in found] == [True, True, False]


@pytest.mark.parametrize("name", [name for name in tables.mig().products if product_geometry(name)])
def test_the_counts_that_are_published_fit_the_geometry_and_one_more_does_not(name: str) -> None:
    for profile, most in tables.mig().products[name].profiles.items():
        assert not isinstance(place(geometry(name), {profile: most}), Impossible)
        assert isinstance(place(geometry(name), {profile: most + 1}), Impossible)


@given(st.fixed_dictionaries({profile: st.integers(0, 8) for profile in PROFILE_IDS[SEVEN]}))
def test_nearest_layouts_fit_and_no_feasible_one_is_nearer(layout: dict[str, int]) -> None:
    wanted = counts(geometry(), layout)

    def distance(other: tuple[int, ...]) -> int:
        return sum(abs(a - b) for a, b in zip(other, wanted, strict=True))

    found = nearest(geometry(), wanted)
    assert all(fit(geometry(), 0, each) is not None for each in found)
    assert distance(found[0]) == min(map(distance, feasible(geometry())))
