"""The smallest change of a GPU's MIG instances, carried out on a SIMULATED GPU."""

import random
import time
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.components.mig.change import Change, Instance, Wanted, change
from gpunode.components.mig.geometry import mask
from gpunode.components.mig.placement import Impossible, Placement, feasible, fit, layout_of, place
from tests.support.mig_placement import FOUR, SEVEN, geometry, plain_layouts, spot_of, wanted
from tests.support.simulated_mig import SimulatedGpu

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

Layout = dict[str, int]


def _read(gpu: SimulatedGpu, name: str) -> list[Instance]:
    """Return the GPU's instances as a reading of it gives them."""
    found = []
    for (profile, start), identity in gpu.instances.items():
        spot = spot_of(name, profile)
        found.append(Instance(Placement(start, spot.size, profile), (spot.profile.slices,), identity))
    return found


def _planned(gpu: SimulatedGpu, layout: Layout, name: str = SEVEN) -> Change:
    found = change(geometry(name), _read(gpu, name), wanted(layout, name))
    assert isinstance(found, Change), found
    return found


def _apply(gpu: SimulatedGpu, plan: Change) -> None:
    for instance in plan.destroyed:
        gpu.destroy(instance.placement.profile, instance.placement.start)
    for instance in plan.created:
        gpu.create(instance.placement.profile, instance.placement.start)


def _gpu_with(layout: Layout, name: str = SEVEN, seed: int | None = None) -> SimulatedGpu:
    """Return a GPU with a layout, at places drawn at random where there is a seed: as others may have left it."""
    gpu = SimulatedGpu(name)
    if seed is None:
        placed = place(geometry(name), layout)
        assert not isinstance(placed, Impossible)
    else:
        placed = _anywhere(layout, name, random.Random(seed))
    for placement in placed:
        gpu.create(placement.profile, placement.start)
    return gpu


def _anywhere(layout: Layout, name: str, chance: random.Random) -> tuple[Placement, ...]:
    """Return a placement of `layout` drawn at random; the planner's own order plays no part in it."""
    while True:
        taken, found = 0, []
        for profile in sorted(layout, key=lambda each: -spot_of(name, each).size):
            spot = spot_of(name, profile)
            for start in chance.sample(spot.starts, layout[profile]):
                if taken & mask(start, spot.size):
                    break
                taken |= mask(start, spot.size)
                found.append(Placement(start, spot.size, profile))
        if len(found) == sum(layout.values()):
            return tuple(found)


def _reached(before: Layout, after: Layout, name: str, seed: int | None = None) -> None:
    """Take a GPU from one layout to another; what stayed must be what it was, and the next plan nothing."""
    gpu = _gpu_with(before, name, seed)
    identities = dict(gpu.instances)
    plan = _planned(gpu, after, name)
    _apply(gpu, plan)
    assert gpu.layout() == after
    kept = {(instance.placement.profile, instance.placement.start) for instance in plan.kept}
    assert {place: identities[place] for place in kept} == {place: gpu.instances[place] for place in kept}
    assert len(plan.created) == sum(after.values()) - len(kept)
    assert _planned(gpu, after, name).is_nothing


def test_what_has_other_compute_instances_than_wanted_does_not_stay() -> None:
    there = [Instance(Placement(4, 4, "3g.40gb"), (1, 1), "1"), Instance(Placement(0, 4, "3g.40gb"), (1, 2), "2")]
    plan = change(geometry(), there, [Wanted("3g.40gb", (3,)), Wanted("3g.40gb", (2, 1))])
    assert isinstance(plan, Change)
    assert [each.identity for each in plan.kept] == ["2"] and [each.identity for each in plan.destroyed] == ["1"]
    assert [(str(each), each.compute) for each in plan.created] == [("3g.40gb:4", (3,))]


def test_no_smaller_change_exists() -> None:
    """Compare with brute force: no larger set of instances that could stay leaves the rest a place."""
    chance = random.Random(7)
    layouts = [layout_of(geometry(), each) for each in feasible(geometry())]
    for _ in range(60):
        before, after = chance.choice(layouts), chance.choice(layouts)
        gpu = _gpu_with(before, seed=chance.randrange(10**6))
        best = len(_planned(gpu, after).kept)
        for kept in combinations(gpu.instances, best + 1):
            rest = dict(after)
            for profile, _ in kept:
                rest[profile] = rest.get(profile, 0) - 1
            if min(rest.values()) < 0:
                continue
            assert not _some_place(list(kept), [name for name, count in rest.items() for _ in range(count)])


def _some_place(there: list[tuple[str, int]], more: list[str]) -> bool:
    """Say whether `more` can be created beside `there`, trying every start of every one on a simulated GPU."""
    if not more:
        return True
    gpu = SimulatedGpu(SEVEN)
    for profile, start in there:
        gpu.create(profile, start)
    for start in spot_of(SEVEN, more[0]).starts:
        try:
            gpu.create(more[0], start)
        except Exception:
            continue
        gpu.destroy(more[0], start)
        if _some_place([*there, (more[0], start)], more[1:]):
            return True
    return False


@pytest.mark.parametrize("name", [SEVEN, FOUR])
def test_every_layout_is_reached_from_empty(name: str) -> None:
    for layout in plain_layouts(name):
        _reached({}, layout, name)


@pytest.mark.parametrize("name", [SEVEN, FOUR])
def test_every_layout_is_reached_from_fifty_others_drawn_at_random(name: str) -> None:
    every = plain_layouts(name)
    chance = random.Random(2026)
    for layout in every:
        for before in chance.choices(every, k=50):
            _reached(before, layout, name, seed=chance.randrange(10**6))


@pytest.mark.tier3
@pytest.mark.parametrize("name", [SEVEN, FOUR])
def test_every_layout_is_reached_from_every_other_with_media_extensions_too(name: str) -> None:
    every = [layout_of(geometry(name), each) for each in feasible(geometry(name))]
    for seed, before in enumerate(every):
        for layout in every:
            _reached(before, layout, name, seed=seed)


_LAYOUTS = st.sampled_from([layout_of(geometry(), each) for each in feasible(geometry())])


@given(_LAYOUTS, _LAYOUTS, st.integers(0, 10**6))
def test_a_change_destroys_what_is_left_over_and_keeps_all_that_is_the_same(a: Layout, b: Layout, seed: int) -> None:
    _reached(a, b, SEVEN, seed)


def test_plans_for_eight_gpus_take_less_than_50_ms() -> None:
    """A coarse guard; tests/bench/mig.py measures."""
    layouts = plain_layouts(SEVEN)
    gpus = [_read(_gpu_with(layout), SEVEN) for layout in layouts[::10]]
    assert len(gpus) == 8
    goal = wanted({"3g.40gb": 1, "2g.20gb": 2})

    def plans() -> float:
        # Cold, as the one plan of a run is.
        fit.cache_clear()
        started = time.perf_counter()
        for there in gpus:
            assert isinstance(change(geometry(), there, goal), Change)
        return time.perf_counter() - started

    # The best of some: what else runs on the machine is no matter of the planner's.
    assert min(plans() for _ in range(5)) < 0.05
