"""A GPU's own profiles and placements, as nvidia-smi prints them, count for more than the table."""

from collections.abc import Callable
from functools import partial

import pytest

from gpunode.base.reading import ParseError
from gpunode.components.mig.change import Change, Wanted, change
from gpunode.components.mig.geometry import Geometry, product_geometry
from gpunode.components.mig.goal import wanted_instances
from gpunode.components.mig.placement import Impossible, place
from gpunode.components.mig.state import own_geometry, parse_placements, parse_profile_rows
from tests.support.messages import unnamed
from tests.support.recorded_smi import last

pytestmark = pytest.mark.pure

# The form of nvidia-smi 550's lists; the numbers of an H100 80GB.
_ROWS = (
    ("1g.10gb", 19, 7, "{0,1,2,3,4,5,6}:1"),
    ("1g.10gb+me", 20, 1, "{0,1,2,3,4,5,6}:1"),
    ("1g.20gb", 15, 4, "{0,2,4,6}:2"),
    ("2g.20gb", 14, 3, "{0,2,4}:2"),
    ("3g.40gb", 9, 2, "{0,4}:4"),
    ("4g.40gb", 5, 1, "{0}:4"),
    ("7g.80gb", 0, 1, "{0}:8"),
)
_RULE = "+-----------------------------------------------------------------------------+"
_HEAD = (
    _RULE,
    "| GPU instance profiles:                                                      |",
    "| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |",
    "|                              Free/Total   GiB              CE    JPEG  OFA  |",
    "|=============================================================================|",
)


def _profiles(*rows: tuple[str, int, int, str]) -> list[str]:
    lines = list(_HEAD)
    for name, number, total, _ in rows:
        lines.append(f"|   0  MIG {name:<14}{number:>4}     0/{total}        9.75       No     16     1     0   |")
        lines.append("|                                                             1     1     0   |")
        lines.append(_RULE)
    return lines


def _placements(*rows: tuple[str, int, int, str]) -> list[str]:
    return [
        f"GPU  0 Profile ID {number:>2} {'Placements' if ',' in places else 'Placement '}: {places}"
        for _, number, _, places in rows
    ]


def _listed(lines: list[str]) -> dict[int, tuple[str, int]]:
    return {number: (name, total) for number, (name, _, total) in parse_profile_rows(lines)[0].items()}


def _own(*rows: tuple[str, int, int, str]) -> Geometry:
    return own_geometry(_listed(_profiles(*rows)), parse_placements(_placements(*rows))[0])


@pytest.mark.parametrize(
    ("recorded", "product"), [("h100-80gb.nvidia-smi-580.txt", "H100-80GB"), ("h200.nvidia-smi-580.txt", "H200-141GB")]
)
def test_the_list_of_a_real_gpu_is_the_table_s_geometry(recorded: str, product: str) -> None:
    # Driver 580 lists what a GPU holds though MIG is not enabled on it.
    profiles, places = (last(recorded, f"mig -{of}").splitlines() for of in ("lgip", "lgipp"))
    found = own_geometry(_listed(profiles), parse_placements(places)[0])
    assert found == product_geometry(product) and hash(found) == hash(product_geometry(product))


@pytest.mark.parametrize(
    ("profile", "places", "layout", "named"),
    [
        # As drivers before branch 510 on an A100: the table would have it at 4.
        (("3g.40gb", 9, 2), "{0}:4", {"4g.40gb": 1, "3g.40gb": 1}, ["4g.40gb + 3g.40gb", "4 from 0"]),
        (("2g.20gb", 14, 3), "{0,2,4,6}:2", {"4g.40gb": 1, "2g.20gb": 2}, [8, "compute", 7]),
    ],
)
def test_what_a_gpu_s_own_list_has_no_place_for_is_impossible_there(
    profile: tuple[str, int, int], places: str, layout: dict[str, int], named: list[object]
) -> None:
    own = _own(*((*profile, places) if row[0] == profile[0] else row for row in _ROWS))
    found = place(own, layout)
    assert isinstance(found, Impossible) and unnamed(found.reason, *named) == []
    plan = change(own, (), [Wanted("3g.40gb", (3,))])
    assert isinstance(plan, Change)
    assert [str(each) for each in plan.created] == ["3g.40gb:0" if profile[0] == "3g.40gb" else "3g.40gb:4"]


def test_a_product_in_no_table_is_planned_by_its_own_list() -> None:
    rows = (("1g.24gb+gfx", 47, 4, "{0,1,2,3}:1"), ("2g.48gb", 35, 2, "{0,2}:2"), ("4g.96gb", 32, 1, "{0}:4"))
    own = _own(*rows)
    wanted = wanted_instances({spot.name: spot.maximum for spot in own.spots}, {"1g.24gb+gfx": 2, "2g.48gb": 1})
    assert not isinstance(wanted, Impossible)
    plan = change(own, (), wanted)
    assert isinstance(plan, Change)
    assert [str(each) for each in plan.created] == ["2g.48gb:2", "1g.24gb+gfx:0", "1g.24gb+gfx:1"]


def test_what_is_no_list_is_an_error_and_so_are_lists_of_different_profiles() -> None:
    known, none = _listed(_profiles(*_ROWS)), "No MIG-enabled devices found."
    wrong: list[Callable[[], object]] = [
        *(partial(parse_placements, [each]) for each in (none, "GPU  0 Profile ID  0 Placement : {}:8", "nonsense")),
        *(partial(parse_profile_rows, [each]) for each in (none, "nonsense")),
        partial(own_geometry, known, parse_placements(_placements(*_ROWS[1:]))[0]),
        partial(own_geometry, {}, {}),
        partial(own_geometry, {1: ("whole", 1)}, {1: ((0,), 1)}),
    ]
    for each in wrong:
        with pytest.raises(ParseError):
            each()
    lines = ["GPU  0 Profile ID  0 Placement : {0}:8", "GPU 11 Profile ID 19 Placements: {0,1}:1", ""]
    assert parse_placements(lines) == {0: {0: ((0,), 8)}, 11: {19: ((0, 1), 1)}}
