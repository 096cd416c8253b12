"""Versions: parsed and compared by upstream parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import versions

pytestmark = pytest.mark.pure

releases = st.lists(st.integers(0, 9999), min_size=1, max_size=4)


def _text(parts: list[int]) -> str:
    return ".".join(map(str, parts))


@pytest.mark.parametrize(
    ("text", "upstream"),
    [
        ("580.95.05-1", "580.95.05"),
        ("580.95.05-0ubuntu1", "580.95.05"),
        ("1.17.8-1", "1.17.8"),
        ("1:1.6.20~ds1-1+deb12u1", "1.6.20"),
        ("1.18.0~rc.1-1", "1.18.0-rc.1"),
        ("v1.29.3", "1.29.3"),
        ("20.10.24+dfsg1", "20.10.24"),
        ("1.31.2+k3s1", "1.31.2"),
        ("384.81", "384.81"),
    ],
)
def test_upstream_part_of_a_package_version(text: str, upstream: str) -> None:
    assert versions.upstream(text) == upstream


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("384.81", "525.60.13"),
        ("570.26", "570.124.06"),
        ("525.60.13", "525.85.12"),
        ("1.9", "1.10"),
        ("1.18.0-rc.1", "1.18.0"),
        ("12.9", "12.10"),
    ],
)
def test_numbers_are_compared_as_numbers(older: str, newer: str) -> None:
    assert versions.at_least(newer, older)
    assert not versions.at_least(older, newer)


def test_the_short_minimum_580_is_met_by_every_580_driver() -> None:
    assert versions.at_least("580.65.06", "580")


@pytest.mark.parametrize(
    ("version", "branch", "inside"),
    [
        ("580.95.05", "580", True),
        ("580.95.05-1", "580.95", True),
        ("580.95.05", "58", False),
        ("580.95.05", "570", False),
        ("580", "580.95", False),
    ],
)
def test_branch_is_a_prefix_of_whole_numbers(version: str, branch: str, inside: bool) -> None:
    assert versions.in_branch(version, branch) is inside


@pytest.mark.parametrize("garbage", ["", "latest", "580.*", "-1", "580..95", "580.95.05; rm", "1\n", "٣.١", "9" * 100])
def test_garbage_is_refused_with_an_example(garbage: str) -> None:
    with pytest.raises(versions.VersionError, match="look like"):
        versions.parsed(garbage)


def test_a_number_is_refused_and_quotes_are_asked_for() -> None:
    with pytest.raises(versions.VersionError, match="in quotes"):
        versions.parsed(12.9)  # type: ignore[arg-type]


@given(releases, releases)
def test_order_is_that_of_the_numbers(one: list[int], other: list[int]) -> None:
    def stripped(parts: list[int]) -> list[int]:
        while parts and parts[-1] == 0:
            parts = parts[:-1]
        return parts

    assert versions.at_least(_text(one), _text(other)) is (stripped(one) >= stripped(other))


@given(releases, st.sampled_from(["", "-1", "-0ubuntu1", "~ds1-1+deb12u1", "+dfsg1"]))
def test_a_distribution_suffix_changes_nothing(parts: list[int], suffix: str) -> None:
    assert versions.same(_text(parts) + suffix, _text(parts))


@given(releases)
def test_every_version_is_in_its_own_branch(parts: list[int]) -> None:
    assert versions.in_branch(_text(parts), versions.branch_of(_text(parts)))


@given(st.text())
def test_any_text_is_a_version_or_refused(text: str) -> None:
    try:
        versions.parsed(text)
    except versions.VersionError:
        return
    assert versions.at_least(text, versions.upstream(text))
