"""Parts of an inventory for an engine: each host is in one, and what must stay together does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.fleet.engine.parts import (
    MOST,
    EngineError,
    Expected,
    Member,
    PartError,
    cut,
    engine_of,
    expected,
    joined,
    refuse_others,
    torn,
    torn_domain,
)

pytestmark = pytest.mark.pure

SITES = st.sampled_from([None, "berlin", "oslo"])
MEMBERS = st.lists(st.tuples(SITES, st.booleans(), st.booleans()), max_size=600).map(
    lambda found: [
        Member(f"gpu-{number}", f"gpu-{number}", f"{number:064}", site, in_cluster, disturbed=disturbed)
        for number, (site, in_cluster, disturbed) in enumerate(found)
    ]
)
WORKERS = st.dictionaries(SITES, st.integers(0, 40))


@given(MEMBERS, WORKERS)
def test_each_host_is_in_one_part_with_hosts_of_its_site(members: list[Member], workers: dict[str | None, int]) -> None:
    parts = cut(members, workers)
    assert sorted(name for part in parts for name in part.names) == sorted(member.name for member in members)
    for part in parts:
        assert {member.site for member in part.members} == {part.site}
        assert {member.in_cluster for member in part.members} == {part.in_cluster}
        assert part.alone == any(member.disturbed for member in part.members)
        assert part.in_cluster or len(part.members) <= MOST


@given(MEMBERS, WORKERS)
def test_hosts_of_the_cluster_at_one_site_are_one_part(members: list[Member], workers: dict[str | None, int]) -> None:
    sites = [part.site for part in cut(members, workers) if part.in_cluster]
    assert len(sites) == len(set(sites))
    assert set(torn(members)) == (set(sites) if len(sites) > 1 else set())


def test_however_many_a_cluster_has_they_are_one_part_and_others_are_not() -> None:
    hosts = [Member(f"gpu-{number}", "", "", in_cluster=number % 2 == 0) for number in range(2000)]
    parts = cut(hosts, {None: 4})
    assert [len(part.members) for part in parts if part.in_cluster] == [1000]
    assert [len(part.members) for part in parts if not part.in_cluster] == [63] * 15 + [55]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=8), st.integers(1, 8), st.data())
def test_no_domain_is_torn_whatever_a_run_does_to_its_hosts(
    sizes: list[int], workers: int, data: st.DataObject
) -> None:
    of = [f"rack{number}" for number, size in enumerate(sizes) for _ in range(size)] + [None] * 50
    mixed = data.draw(st.permutations(of))
    disturbed = data.draw(st.sets(st.integers(0, len(mixed) - 1), max_size=5))
    hosts = [
        Member(f"gpu-{number}", "", "", domain=domain, disturbed=number in disturbed)
        for number, domain in enumerate(mixed)
    ]
    parts = cut(hosts, {None: workers})
    assert sorted(name for part in parts for name in part.names) == sorted(host.name for host in hosts)
    for domain in {host.domain for host in hosts} - {None}:
        assert sum(domain in {member.domain for member in part.members} for part in parts) == 1
    assert torn_domain(hosts) == ()
    moved = [*hosts, Member("far", "", "", "oslo", domain=hosts[0].domain)]
    assert (torn_domain(moved) != ()) == (hosts[0].domain is not None)


def test_a_part_s_fingerprint_is_of_all_its_hosts_in_whatever_order() -> None:
    prints = {"a": "1", "b": "2"}
    assert joined(prints) == joined(dict(reversed(prints.items())))
    assert len({joined(each) for each in (prints, {"a": "2", "b": "1"}, {"a": "1"}, {**prints, "b": "3"})}) == 4


def test_a_worker_with_another_gpunode_or_other_settings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import version

    prints = {"gpu-1": "1"}
    desired = Expected(version("gpunode"), joined(prints), 1)
    ((name, value),) = desired.environment().items()
    monkeypatch.setenv(name, value)
    assert expected() == desired
    refuse_others(desired, prints)
    with pytest.raises(PartError):
        refuse_others(desired, {"gpu-1": "2"})
    with pytest.raises(PartError, match=r"0\.0\.9"):
        refuse_others(Expected("0.0.9", joined(prints)), prints)
    monkeypatch.delenv(name)
    assert expected() is None


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(EngineError) as refused:
        engine_of("dask://user:s3cret@a:1")
    assert "s3cret" not in str(refused.value)
