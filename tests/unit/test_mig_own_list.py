"""A GPU's own profiles and placements, as nvidia-smi prints them, count for more than the table."""

import pytest

from gpunode.base.reading import ParseError
from gpunode.components.mig.change import Change, Wanted, change
from gpunode.components.mig.geometry import Geometry, product_geometry
from gpunode.components.mig.goal import wanted_instances
from gpunode.components.mig.placement import Impossible, place
from gpunode.components.mig.reported_profiles import own_geometry, parse_placements, parse_profiles
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


def _own(*rows: tuple[str, int, int, str]) -> Geometry:
    return own_geometry(parse_profiles(_profiles(*rows))[0], parse_placements(_placements(*rows))[0])


def test_the_list_of_an_h100_is_the_table_s_geometry() -> None:
    assert _own(*_ROWS) == product_geometry("H100-80GB")
    assert hash(_own(*_ROWS)) == hash(product_geometry("H100-80GB"))


@pytest.mark.parametrize(
    ("recorded", "product"), [("h100-80gb.nvidia-smi-580.txt", "H100-80GB"), ("h200.nvidia-smi-580.txt", "H200-141GB")]
)
def test_the_list_of_a_real_gpu_is_the_table_s_geometry(recorded: str, product: str) -> None:
    # Driver 580 lists what a GPU holds though MIG is not enabled on it.
    profiles, places = (last(recorded, f"mig -{of}").splitlines() for of in ("lgip", "lgipp"))
    assert own_geometry(parse_profiles(profiles)[0], parse_placements(places)[0]) == product_geometry(product)


def test_a_driver_that_places_a_3g_at_0_alone_has_no_place_for_4g_and_3g() -> None:
    # As drivers before branch 510 on an A100: the table would have it at 4.
    old = _own(*(("3g.40gb", 9, 2, "{0}:4") if row[0] == "3g.40gb" else row for row in _ROWS))
    found = place(old, {"4g.40gb": 1, "3g.40gb": 1})
    assert isinstance(found, Impossible) and found.reason == (
        "4g.40gb + 3g.40gb: the one combination of legal places overlaps "
        "(memory slices: 4g.40gb takes 4 from 0; 3g.40gb takes 4 from 0)"
    )
    plan = change(old, (), [Wanted("3g.40gb", (3,))])
    assert isinstance(plan, Change) and [str(each) for each in plan.created] == ["3g.40gb:0"]


def test_memory_that_is_left_helps_nobody_where_compute_slices_are_not() -> None:
    wide = _own(*(("2g.20gb", 14, 3, "{0,2,4,6}:2") if row[0] == "2g.20gb" else row for row in _ROWS))
    found = place(wide, {"4g.40gb": 1, "2g.20gb": 2})
    assert isinstance(found, Impossible) and "they take 8 compute slices, and the GPU has 7" in found.reason


def test_a_product_in_no_table_is_planned_by_its_own_list() -> None:
    rows = (("1g.24gb+gfx", 47, 4, "{0,1,2,3}:1"), ("2g.48gb", 35, 2, "{0,2}:2"), ("4g.96gb", 32, 1, "{0}:4"))
    own = _own(*rows)
    wanted = wanted_instances({spot.name: spot.maximum for spot in own.spots}, {"1g.24gb+gfx": 2, "2g.48gb": 1})
    assert not isinstance(wanted, Impossible)
    plan = change(own, (), wanted)
    assert isinstance(plan, Change)
    assert [str(each) for each in plan.created] == ["2g.48gb:2", "1g.24gb+gfx:0", "1g.24gb+gfx:1"]


def test_each_gpu_has_a_list_of_its_own() -> None:
    lines = ["GPU  0 Profile ID  0 Placement : {0}:8", "GPU 11 Profile ID 19 Placements: {0,1}:1", ""]
    assert parse_placements(lines) == {0: {0: ((0,), 8)}, 11: {19: ((0, 1), 1)}}


@pytest.mark.parametrize("line", ["No MIG-enabled devices found.", "GPU  0 Profile ID  0 Placement : {}:8", "nonsense"])
def test_what_is_no_list_is_an_error_of_its_line(line: str) -> None:
    with pytest.raises(ParseError, match=line[:20]):
        parse_placements([line])
    if not line.startswith("GPU"):
        with pytest.raises(ParseError, match=line[:20]):
            parse_profiles([line])


def test_lists_that_do_not_speak_of_the_same_profiles_are_an_error() -> None:
    with pytest.raises(ParseError, match="placements of"):
        own_geometry(parse_profiles(_profiles(*_ROWS))[0], parse_placements(_placements(*_ROWS[1:]))[0])
    with pytest.raises(ParseError, match="placements of"):
        own_geometry({}, {})
    with pytest.raises(ParseError, match="a profile that is none"):
        own_geometry({1: ("whole", 1)}, {1: ((0,), 1)})
