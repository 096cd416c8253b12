"""Where MIG instances go: explicit placements, proofs that there are none, and the nearest layouts that fit."""

from itertools import permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.layouts import feasible, maximal, nearest
from gpunode.components.mig.placement import Impossible, counts, fit, layout_of, place
from tests.support.mig_placement import FOUR, SEVEN, geometry, plain_layouts
from tests.support.simulated_mig import PROFILE_IDS, TABLE, Refused, SimulatedGpu

pytestmark = pytest.mark.pure


def _why(layout: dict[str, int], name: str = SEVEN) -> str:
    found = place(geometry(name), layout)
    assert isinstance(found, Impossible), f"{layout} was placed: {found}"
    return found.reason


def test_seven_slices_have_77_layouts_and_the_a30_has_9() -> None:
    assert len(plain_layouts(SEVEN)) == 77
    assert len(plain_layouts(FOUR)) == 9


@pytest.mark.parametrize("name", [SEVEN, FOUR])
def test_every_layout_is_placed_as_a_gpu_takes_it(name: str) -> None:
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
    starts = {
        profile: next(
            row["starts"]
            for row in TABLE["geometries"][TABLE["products"][name]["geometry"]]
            if row["profile_id"] == PROFILE_IDS[name][profile]
        )
        for profile in plain
    }
    most = {profile: TABLE["products"][name]["profiles"][profile] for profile in plain}
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
            for start in starts[profile]:
                try:
                    gpu.create(profile, start)
                except Refused:
                    continue
                gpu.destroy(profile, start)
                more = there | {(profile, start)}
                if more not in seen:
                    seen.add(more)
                    frontier.append(more)
    for wanted in product(*(range(most[profile] + 1) for profile in plain)):
        layout = dict(zip(plain, wanted, strict=True))
        assert isinstance(place(geometry(name), layout), Impossible) == (wanted not in reachable), layout


def test_two_3g_and_one_1g_do_not_fit_for_both_3g_fill_the_memory() -> None:
    assert _why({"3g.40gb": 2, "1g.10gb": 1}) == ("2 x 3g.40gb + 1g.10gb: they take 9 memory slices, and the GPU has 8")


def test_a_4g_two_double_memory_1g_and_a_1g_do_not_fit() -> None:
    assert "9 memory slices" in _why({"4g.40gb": 1, "1g.20gb": 2, "1g.10gb": 1})


def test_eight_1g_do_not_fit_though_there_are_eight_memory_slices() -> None:
    assert "of 1g.10gb the GPU holds 7 at most" in _why({"1g.10gb": 8})


def test_two_2g_beside_a_4g_do_not_fit_though_slices_are_left() -> None:
    # 4 + 2 + 2 are all 8 memory slices, but there are 7 compute slices.
    assert "they take 8 compute slices, and the GPU has 7" in _why({"4g.40gb": 1, "2g.20gb": 2})


def test_the_reason_names_the_smallest_part_that_does_not_fit() -> None:
    found = place(geometry(), {"4g.40gb": 1, "2g.20gb": 2, "1g.10gb": 1})
    assert isinstance(found, Impossible)
    assert dict(found.part) == {"4g.40gb": 1, "2g.20gb": 2}
    for profile in dict(found.part):
        less = {**dict(found.part), profile: dict(found.part)[profile] - 1}
        assert not isinstance(place(geometry(), less), Impossible)


def test_a_profile_that_the_product_lacks_is_named_with_those_it_has() -> None:
    assert _why({"1g.5gb": 7}).startswith("the GPU has no profile 1g.5gb; it has 7g.80gb, 4g.40gb,")


def test_six_1g_and_one_double_memory_1g_fit_which_no_automatic_order_finds() -> None:
    placed = place(geometry(), {"1g.10gb": 6, "1g.20gb": 1})
    assert not isinstance(placed, Impossible)
    assert str(placed[0]) == "1g.20gb:6"


def test_two_profiles_of_one_shape_collide_by_start_and_size() -> None:
    at_four = {"1g.20gb": (4, 2), "2g.20gb": (4, 2)}
    spots = {name: geometry().spot(name) for name in at_four}
    for name, (start, size) in at_four.items():
        assert start in spots[name].starts and spots[name].size == size
    gpu = SimulatedGpu(SEVEN)
    gpu.create("2g.20gb", 4)
    with pytest.raises(Refused, match="insufficient resources"):
        gpu.create("1g.20gb", 4)
    # Slots 0 to 3 and 6 to 7 taken: what is left at 4 is for one of the two.
    occupied = 0b11001111
    one = {"1g.20gb": 1}, {"2g.20gb": 1}
    assert all(fit(geometry(), occupied, counts(geometry(), layout)) for layout in one)
    assert fit(geometry(), occupied, counts(geometry(), {"1g.20gb": 1, "2g.20gb": 1})) is None


def test_1g_35gb_is_double_memory_on_an_h200_and_plain_on_a_gb300() -> None:
    h200, gb300 = geometry("H200-141GB").spot("1g.35gb"), geometry("GB300-278GB").spot("1g.35gb")
    assert (h200.size, h200.maximum, gb300.size, gb300.maximum) == (2, 4, 1, 7)
    assert "of 1g.35gb the GPU holds 4 at most" in _why({"1g.35gb": 7}, "H200-141GB")
    assert not isinstance(place(geometry("GB300-278GB"), {"1g.35gb": 7}), Impossible)


def test_one_instance_with_media_extensions_is_all_whatever_its_size() -> None:
    assert "1 instance with +me at most, of whatever size" in _why({"1g.6gb+me": 1, "2g.12gb+me": 1}, FOUR)


@pytest.mark.parametrize("name", [name for name, row in tables.mig().products.items() if row.geometry != "unverified"])
def test_the_counts_that_are_published_fit_the_geometry_and_one_more_does_not(name: str) -> None:
    for profile, most in tables.mig().products[name].profiles.items():
        assert not isinstance(place(geometry(name), {profile: most}), Impossible)
        assert isinstance(place(geometry(name), {profile: most + 1}), Impossible)


def test_a_geometry_that_nobody_verified_is_none() -> None:
    assert product_geometry("RTX-PRO-6000") is None


def test_every_layout_is_part_of_a_maximal_one_and_none_of_those_of_another() -> None:
    biggest = maximal(geometry())

    def within(layout: tuple[int, ...], other: tuple[int, ...]) -> bool:
        return all(a <= b for a, b in zip(layout, other, strict=True))

    for layout in feasible(geometry()):
        assert any(within(layout, big) for big in biggest)
    assert not [pair for pair in permutations(biggest, 2) if within(*pair)]


def test_the_nearest_layouts_leave_out_or_add_least_and_are_no_part_of_each_other() -> None:
    found = nearest(geometry(), counts(geometry(), {"3g.40gb": 2, "1g.10gb": 1}))
    assert [layout_of(geometry(), layout) for layout in found] == [
        {"3g.40gb": 2},
        {"3g.40gb": 1, "1g.10gb": 1},
        {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1},
    ]


@given(st.fixed_dictionaries({profile: st.integers(0, 8) for profile in PROFILE_IDS[SEVEN]}))
def test_nearest_layouts_fit_and_no_feasible_one_is_nearer(layout: dict[str, int]) -> None:
    wanted = counts(geometry(), layout)

    def distance(other: tuple[int, ...]) -> int:
        return sum(abs(a - b) for a, b in zip(other, wanted, strict=True))

    found = nearest(geometry(), wanted)
    assert all(fit(geometry(), 0, each) is not None for each in found)
    assert distance(found[0]) == min(map(distance, feasible(geometry())))
