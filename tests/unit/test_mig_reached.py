"""The smallest change, carried out by SIMULATED nvidia-smi, whose driver shares nothing with the planner.

What is there, and where instances may stand, is read as on a node: from what nvidia-smi prints.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.components.mig.change import Change, Instance, Wanted, change, in_order
from gpunode.components.mig.goal import Verdict, judge
from gpunode.components.mig.placement import Placement
from gpunode.components.mig.smi import LISTS, parse_mig
from gpunode.components.mig.state import MigGpu
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.system.smi import QUERY
from tests.support.mig_placement import FOUR, SEVEN, plain_layouts
from tests.support.nvidia_smi import VERSION, machine_with

pytestmark = pytest.mark.simulated

MODELS = {SEVEN: "h100-80gb", FOUR: "a30"}


def _smi(machine: Machine, line: str) -> str:
    printed, status = call(line.split(), VERSION, machine)
    assert status == 0, printed.decode()
    return printed.decode()


def _read(machine: Machine) -> MigGpu:
    """Return the GPU as the fact would read it."""
    rows = _smi(machine, f"--query-gpu={','.join(QUERY)} --format=csv,noheader").splitlines()
    lines = ["gpu.rc=0", *(f"gpu={row}" for row in rows)]
    for key, arguments in LISTS.items():
        printed, status = call(arguments.split(), VERSION, machine)
        lines += [f"{key}.rc={status}", *(f"{key}={line}" for line in printed.decode().splitlines())]
    reading = parse_mig(lines)
    assert reading.status == "ok", reading.message
    return reading.gpus[0]


def _there(gpu: MigGpu) -> list[Instance]:
    """Return its instances as the planner has them; they are told apart by their devices' UUIDs."""
    return [
        Instance(Placement(each.start, each.size, each.profile), tuple(ci.size for ci in each.compute), str(each.id))
        for each in gpu.instances or ()
    ]


def _uuids(gpu: MigGpu) -> dict[str, str | None]:
    return {str(each.id): each.compute[0].uuid for each in gpu.instances or ()}


def _reach(machine: Machine, layout: dict[str, int]) -> Change:
    """Bring the GPU to a layout, and see that it is there, and that what was to stay is what it was."""
    before = _read(machine)
    geometry = before.own_geometry
    assert geometry is not None
    slices = {spot.name: spot.profile.slices for spot in geometry.spots}
    wanted = [Wanted(profile, (slices[profile],)) for profile, count in layout.items() for _ in range(count)]
    plan = change(geometry, _there(before), wanted)
    assert isinstance(plan, Change), plan
    for gone in plan.destroyed:
        _smi(machine, f"mig -i 0 -dci -gi {gone.identity}")
        _smi(machine, f"mig -i 0 -dgi -gi {gone.identity}")
    for new in plan.created:
        number = next(spot for spot in geometry.spots if spot.name == new.placement.profile).profile_id
        _smi(machine, f"mig -i 0 -cgi {number}:{new.placement.start} -C")
    after = _read(machine)
    assert Counter(each.profile for each in after.instances or ()) == layout
    assert {(each.start, each.profile) for each in after.instances or ()} == {
        (each.placement.start, each.placement.profile) for each in (*plan.kept, *plan.created)
    }
    old, now = _uuids(before), _uuids(after)
    assert None not in now.values()
    assert {str(each.identity): old[str(each.identity)] for each in plan.kept}.items() <= now.items()
    assert len(set(old.values()) & set(now.values())) == len(plan.kept)
    return plan


def _gpu(root: Path, product: str) -> Machine:
    machine = machine_with(root, {"gpu": MODELS[product], "count": 1})
    _smi(machine, "-mig 1")
    return machine


@pytest.mark.parametrize("product", [pytest.param(SEVEN, marks=pytest.mark.tier2), FOUR])
def test_every_layout_is_reached_from_empty(tmp_path: Path, product: str) -> None:
    machine = _gpu(tmp_path, product)
    for layout in plain_layouts(product):
        _reach(machine, {})
        assert not _reach(machine, layout).kept


@pytest.mark.parametrize("product", MODELS)
def test_layouts_are_reached_from_others_drawn_at_random(tmp_path: Path, product: str) -> None:
    machine = _gpu(tmp_path, product)
    chance = random.Random(7)
    for _ in range(40):
        _reach(machine, chance.choice(plain_layouts(product)))


def test_from_3g_2g_1g_1g_to_3g_2g_2g_the_3g_and_the_2g_keep_their_uuids(tmp_path: Path) -> None:
    machine = _gpu(tmp_path, SEVEN)
    _smi(machine, "mig -cgi 9,14,19,19 -C")
    plan = _reach(machine, {"3g.40gb": 1, "2g.20gb": 2})
    assert sorted(each.placement.profile for each in plan.kept) == ["2g.20gb", "3g.40gb"]
    assert not _reach(machine, {"3g.40gb": 1, "2g.20gb": 2}).created


def _declared(product: str) -> st.SearchStrategy[dict[str, int]]:
    """Draw counts of devices, with fewer compute slices than their GPU instance has or with all of them."""
    names = []
    for profile in tables.mig().products[product].profiles:
        slices = int(profile.partition("g")[0])
        names += [profile, *(f"{size}c.{profile}" for size in tables.mig().compute_starts[slices] if size < slices)]
    return st.dictionaries(st.sampled_from(names), st.integers(1, 7), min_size=1, max_size=4)


@pytest.fixture(scope="module", params=MODELS)
def placed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Machine]:
    """Return a product and a GPU of it in MIG mode."""
    return request.param, _gpu(tmp_path_factory.mktemp("placed"), request.param)


@settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow], deadline=None)
@given(data=st.data())
def test_what_is_called_placed_the_gpu_takes_in_that_order(placed: tuple[str, Machine], data: st.DataObject) -> None:
    product, machine = placed
    declared = data.draw(_declared(product))
    judged = judge(product, declared)
    if judged.verdict is not Verdict.PLACED:
        return
    for gone in ("-dci", "-dgi"):
        call(["mig", gone], VERSION, machine)
    for each in judged.instances or ():
        printed = _smi(machine, f"mig -cgi {each.placement}")
        number = printed.split("GPU instance ID")[1].split()[0]
        whole = each.placement.profile
        names = [whole if size == int(whole[0]) else f"{size}c.{whole}" for size in each.compute]
        _smi(machine, f"mig -gi {number} -cci {','.join(names)}")
    found = _read(machine).instances or ()
    assert Counter(compute.profile for each in found for compute in each.compute) == declared
    assert all(compute.uuid for each in found for compute in each.compute)


def test_every_set_of_compute_instances_that_has_the_slices_has_an_order_in_which_each_finds_its_place() -> None:
    for slices, starts in tables.mig().compute_starts.items():
        for number in range(1, slices + 1):
            for sizes in combinations_with_replacement(starts, number):
                assert (in_order(slices, sizes) is None) == (sum(sizes) > slices), (slices, sizes)
    assert in_order(7, (3, 2, 2)) == (2, 3, 2)
