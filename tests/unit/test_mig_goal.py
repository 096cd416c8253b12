"""From declared profiles to the instances of a product: published names, shared GPU instances, verdicts, filters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.components.mig.check import check, target
from gpunode.components.mig.device_filter import Match, PciId, matches, parse_pci_id
from gpunode.components.mig.goal import Verdict, judge, nearest_layouts
from gpunode.settings.mig_parted.declaration import parse_declaration
from gpunode.settings.mig_parted.published import known_names, published

pytestmark = pytest.mark.pure

PRODUCTS = tuple(tables.mig().products)
H100 = PciId(0x2330, 0x10DE)


def _placed(product: str, mig_devices: dict[str, int]) -> list[tuple[str, tuple[int, ...]]]:
    judged = judge(product, mig_devices)
    assert judged.verdict is Verdict.PLACED and judged.instances is not None, judged.reason
    return [(str(instance), instance.compute) for instance in judged.instances]


@pytest.mark.parametrize("product", PRODUCTS)
def test_every_published_configuration_fits_its_product(product: str) -> None:
    for name, (entry,) in published(product).configs.items():
        assert judge(product, entry.mig_devices or {}).verdict is Verdict.PLACED, name


def test_published_names_are_those_that_people_have_in_their_files() -> None:
    h100 = published("H100-80GB").configs
    assert list(h100) == [
        "all-disabled", "all-enabled", "all-1g.10gb", "all-1g.10gb.me", "all-1g.20gb", "all-2g.20gb", "all-3g.40gb",
        "all-4g.40gb", "all-7g.80gb", "all-balanced",
    ]  # fmt: skip
    assert h100["all-disabled"][0].mig_enabled is False
    assert h100["all-enabled"][0].mig_devices == {}
    assert h100["all-1g.10gb.me"][0].mig_devices == {"1g.10gb+me": 1}
    assert h100["all-balanced"][0].mig_devices == {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
    assert published("A30-24GB").configs["all-balanced"][0].mig_devices == {"2g.12gb": 1, "1g.6gb": 2}
    # One name, two meanings: on an A100 40GB it is the profile with double memory.
    assert published("A100-40GB").configs["all-1g.10gb"][0].mig_devices == {"1g.10gb": 4}
    assert h100["all-1g.10gb"][0].mig_devices == {"1g.10gb": 7}
    rtx = published("RTX-PRO-6000").configs
    assert {"all-1g.24gb-me", "all-1g.24gb.me.all", "all-2g.48gb.gfx"} <= set(rtx) <= set(known_names())


def test_compute_instances_share_a_gpu_instance_as_far_as_they_fit() -> None:
    assert _placed("H100-80GB", {"1c.3g.40gb": 3}) == [("3g.40gb:4", (1, 1, 1))]
    assert _placed("H100-80GB", {"1c.3g.40gb": 1, "2c.3g.40gb": 1, "3g.40gb": 1}) == [
        ("3g.40gb:0", (2, 1)),
        ("3g.40gb:4", (3,)),
    ]
    assert _placed("H200-141GB", {"3c.7g.141gb": 1, "2c.7g.141gb": 2}) == [("7g.141gb:0", (2, 3, 2))]
    judged = judge("H100-80GB", {"1c.3g.40gb": 7})
    assert judged.verdict is Verdict.NOT_PLACED and "of 3g.40gb the GPU holds 2 at most" in (judged.reason or "")


def test_a_compute_instance_of_a_size_that_there_is_not_is_refused() -> None:
    judged = judge("H100-80GB", {"3c.4g.40gb": 1})
    assert judged.verdict is Verdict.NOT_PLACED
    assert judged.reason == "3c.4g.40gb: a 4g.40gb holds compute instances of 1c, 2c, 4c"


def test_a_huge_count_is_refused_and_not_reckoned_with() -> None:
    judged = judge("H100-80GB", {"1g.10gb": 2**62})
    assert "of 1g.10gb the GPU holds 7 at most" in (judged.reason or "")
    assert nearest_layouts("H100-80GB", {"1g.10gb": 2**62})[0] == {"1g.10gb": 7}


def test_a_profile_of_another_product_finds_its_like() -> None:
    assert nearest_layouts("H100-80GB", {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}) == (
        {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2},
    )
    assert judge("H100-80GB", {"1g.5gb": 7}).verdict is Verdict.NOT_PLACED


def test_without_a_verified_geometry_only_what_is_published_fits_and_too_many_slices_do_not() -> None:
    known = judge("RTX-PRO-6000", {"1g.24gb": 2, "2g.48gb": 1})
    assert (known.verdict, known.instances) == (Verdict.PLACED, None)
    unknown = judge("RTX-PRO-6000", {"1g.24gb+gfx": 2, "2g.48gb": 1})
    assert unknown.verdict is Verdict.UNDECIDED and "not verified" in (unknown.reason or "")
    too_many = judge("RTX-PRO-6000", {"1g.24gb+gfx": 3, "2g.48gb": 1})
    assert too_many.verdict is Verdict.NOT_PLACED and "5 compute slices" in (too_many.reason or "")
    assert judge("RTX-PRO-6000", {"2g.48gb": 3}).verdict is Verdict.NOT_PLACED
    assert judge("RTX-PRO-6000", {}).instances == ()


@given(
    st.sampled_from(PRODUCTS).flatmap(
        lambda product: st.tuples(
            st.just(product),
            st.dictionaries(st.sampled_from(list(tables.mig().products[product].profiles)), st.integers(0, 9)),
        )
    )
)
def test_what_is_called_nearest_fits_whatever_was_asked_for(asked: tuple[str, dict[str, int]]) -> None:
    product, mig_devices = asked
    for layout in nearest_layouts(product, mig_devices):
        assert judge(product, layout).verdict is Verdict.PLACED


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("0x233010DE", Match.YES),
        ("0x233010de", Match.YES),
        ("590352606", Match.YES),
        ("0x2330_10DE", Match.YES),
        ("0x233110DE", Match.NO),
        ("0x23301002", Match.NO),
        ("0x233010DE:0x16C010DE", Match.MAYBE),
        ("0x233010DE:0x16C010DE:extra", Match.NO),
        ("233010DE", Match.NO),
        ("0x123310DE0", Match.NO),
        ("", Match.NO),
    ],
)
def test_a_filter_lets_through_what_it_names(text: str, match: Match) -> None:
    assert matches([text], H100) is match
    assert matches([text, "0x233010DE"], H100) is Match.YES


def test_a_filter_with_a_subsystem_is_for_that_board_alone() -> None:
    board = PciId(0x2330, 0x10DE, (0x16C0, 0x10DE))
    assert parse_pci_id("0x233010DE:0x16C010DE") == board
    assert matches(["0x233010DE:0x16C010DE"], board) is Match.YES
    assert matches(["0x233010DE:0x16C110DE"], board) is Match.NO
    assert matches(["0x233010DE"], board) is Match.YES
    assert matches([], board) is Match.YES


def test_a_gpu_is_named_by_product_or_device_id() -> None:
    for text in ("H100-80GB", "h100-80gb", "0x2330", "0x233010DE", "0X2331"):
        found = target(text)
        assert found is not None and found.product == "H100-80GB", text
    assert target("0x2330") != target("H100-80GB")
    for text in ("", "H100", "2330", "0x2236", "0x23300000"):
        assert target(text) is None, text


TWO = """version: v1
mig-configs:
  a:
  - {device-filter: '0x233010DE', devices: all, mig-enabled: true, mig-devices: {3g.40gb: 2, 1g.10gb: 1}}
  - {device-filter: ['0x233010DE', '0x233110DE'], devices: %s, mig-enabled: true, mig-devices: {3g.40gb: 2}}
"""


def test_a_later_entry_for_every_gpu_counts_and_one_for_some_counts_beside() -> None:
    overridden = check(parse_declaration(TWO % "all", "f"), ["a"], target("0x2330")).configs[0]
    assert overridden.verdict is Verdict.PLACED and overridden.entries[0].overridden
    beside = check(parse_declaration(TWO % "[1]", "f"), ["a"], target("0x2330")).configs[0]
    assert beside.verdict is Verdict.NOT_PLACED and not beside.entries[0].overridden
    # For another of the product's ids the first entry is not there at all.
    other = check(parse_declaration(TWO % "[1]", "f"), ["a"], target("0x2331")).configs[0]
    assert other.verdict is Verdict.PLACED and other.entries[0].match is Match.NO


def test_a_gpu_for_which_there_is_no_entry_gets_nothing_placed() -> None:
    (config,) = check(parse_declaration(TWO % "all", "f"), ["a"], target("A30-24GB")).configs
    assert config.verdict is Verdict.NOT_PLACED and not any(entry.judged for entry in config.entries)
