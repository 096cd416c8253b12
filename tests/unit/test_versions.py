"""Versions: parsed and compared by upstream parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import versions

pytestmark = pytest.mark.pure

releases = st.lists(st.integers(0, 9999), min_size=1, max_size=4)


def _text(parts: list[int]) -> str:
    return ".".join(map(str, parts))


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
