"""What a history answers after documents of drift and apply: in a file of SQLite's, and in the real PostgreSQL."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from gpunode.base.findings import Finding
from gpunode.history.asking import Answer, Question, answers, asking, changes, known
from gpunode.history.place import HistoryError, NothingError, Place
from gpunode.history.tables import findings, forget, prune
from gpunode.history.told import told
from gpunode.history.writing import Since, record
from tests.support import postgresql
from tests.support.generated import EXAMPLES
from tests.support.history_documents import (
    GOOD,
    NOT_UNDERSTOOD,
    OLD,
    OLDER,
    REFUSED,
    UNKNOWN,
    UNREACHED,
    applied,
    at,
    collected,
    document,
)  # fmt: skip
from tests.support.messages import unnamed

AGO = "2026-01-14 00:10 UTC"
SILENT = Finding("agent", UNKNOWN.finding_class, "last pull", AGO, "within 1:00:00", code="agent.silent")
PULLED = Finding("agent", GOOD.finding_class, "last success", AGO, "within 1:00:00", code="agent.no-success")
POWER = Finding("power", OLD.finding_class, "power limit", "700 W", "600 W", code="power.power-limit-of-gpu")
FINDINGS = {
    "GOOD": GOOD, "OLD": OLD, "OLDER": OLDER, "REFUSED": REFUSED, "UNREACHED": UNREACHED, "POWER": POWER,
    "SILENT": SILENT, "PULLED": PULLED,
}  # fmt: skip
STORIES = yaml.safe_load((Path(__file__).parent / "data" / "history_stories.yaml").read_text())
KEY = ("driver", "loaded module")
_NAMES = map("fleet {}".format, itertools.count())


@pytest.fixture(
    scope="module", params=["SQLite", pytest.param("PostgreSQL", marks=[pytest.mark.real, pytest.mark.tier2])]
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Return an empty history."""
    if request.param == "SQLite":
        yield Place(tmp_path_factory.mktemp("history") / "history.sqlite")
        return
    running: postgresql.Server = request.getfixturevalue("server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSFILE", str(running.passfile))
        yield Place(url=running.make("store"))


class Fleet:
    """Hold an inventory of a history's, and ask it."""

    def __init__(self, place: Place) -> None:
        """Begin with a name that nobody has."""
        self.place, self.name = place, next(_NAMES)

    def tell(self, *documents: dict[str, Any], keep: timedelta | None = None) -> Since:
        """Write documents; return what came of the last."""
        return [record(self.place, told(each), self.name, keep) for each in documents][-1]

    def collect(self, *documents: dict[str, Any]) -> None:
        """Write what agents' reports told."""
        for each in documents:
            record(self.place, told(each, "agent"), self.name)

    def answers(self, minute: float | None = None, **asked: Any) -> list[Answer]:
        """Return what is so, or was at a minute."""
        with asking(self.place) as connection:
            return answers(connection, Question(self.name, **asked), None if minute is None else at(minute))

    def so(self, minute: float | None = None) -> set[tuple[str, str, str | None]]:
        """Return (host, component, actual) of what is so."""
        return {(each.host, each.interval.key[0], each.interval.state.actual) for each in self.answers(minute)}

    def changed(self, since: float = 0, until: float = 1000, **asked: Any) -> list[str]:
        """Return what changed: `10 began gpu-1`."""
        with asking(self.place) as connection:
            found = changes(connection, Question(self.name, **asked), at(since), at(until))
        return [f"{minutes(each.at)} {each.kind.value} {each.host or ''}".strip() for each in found]

    def rows(self) -> int:
        """Return how many findings are kept."""
        with asking(self.place) as connection:
            number = connection.execute(select(func.count()).select_from(findings)).scalar_one()
            return int(number)


@pytest.fixture
def fleet(place: Place) -> Fleet:
    """Return an inventory that nobody told of."""
    return Fleet(place)


def minutes(time: datetime) -> int:
    return int((time - at(0)).total_seconds()) // 60


def known_lines(found: list[Answer]) -> list[str]:
    """Return what is so: `gpu-1 driver 570.10 since 10 good 0`, the times in minutes."""
    intervals = sorted((each.host, each.interval.key[0], each.interval) for each in found)
    return [
        f"{host} {component} {each.state.actual} since {minutes(each.since)}"
        + ("" if each.last_good is None else f" good {minutes(each.last_good)}")
        for host, component, each in intervals
    ]


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_is_known_after_what_was_told(fleet: Fleet, story: list[dict[str, Any]]) -> None:
    for step in story:
        hosts: dict[str, Any] = {}
        for name, kinds in step["hosts"].items():
            own, *named = kinds if step.get("by") == "agent" else (0, *([kinds] if isinstance(kinds, str) else kinds))
            findings = tuple(FINDINGS[each] for each in named)
            hosts[name] = (own, findings) if step.get("by") == "agent" else findings
        if step.get("by") == "agent":
            fleet.collect(collected(step["at"], hosts))
        elif step.get("by") == "apply":
            fleet.tell(applied(step["at"], hosts))
        else:
            fleet.tell(document(step["at"], hosts, limit=tuple(step.get("limit", ()))))
        if "now" in step:
            assert known_lines(fleet.answers()) == step["now"]
        for minute, lines in step.get("then", {}).items():
            assert known_lines(fleet.answers(minute)) == lines
        if "changes" in step:
            assert fleet.changed() == step["changes"]


def test_an_answer_has_all_that_was_told_of_it(fleet: Fleet) -> None:
    written = fleet.tell(document(0, {"gpu-1": GOOD, "gpu-2": OLD}), document(10, {"gpu-1": OLDER, "gpu-2": OLD}))
    first, second = fleet.answers()
    assert (first.interval.begun, first.from_first) == (at(10), False)
    assert (second.from_first, second.seen) == (True, at(10))
    assert (second.interval.state.cause, second.interval.state.remedy) == (OLD.cause, OLD.remedy)
    assert written == {"gpu-1": {KEY: (at(10), at(0))}, "gpu-2": {KEY: (at(0), None)}}


def test_what_changed_is_told_with_the_time_before_which_it_was_not_so(fleet: Fleet) -> None:
    fleet.tell(*(document(10 * number, {"gpu-1": kind}) for number, kind in enumerate((GOOD, OLD, OLDER, GOOD))))
    with asking(fleet.place) as connection:
        begun, changed, ended = changes(connection, Question(fleet.name), at(0), at(60))
    assert (begun.earliest, begun.by) == (at(0), "drift")
    assert changed.before is not None and changed.after is not None
    assert (changed.before.state.actual, changed.after.state.actual) == ("570.10", "560.1")
    assert (ended.earliest, ended.before and ended.before.state.actual) == (at(20), "560.1")
    assert fleet.changed(15, 25) == ["20 changed gpu-1"]
    assert fleet.changed(components=("mig",)) == fleet.changed(hosts=("gpu-2",)) == []


def test_a_fleet_that_stays_as_it_is_takes_no_more_room(fleet: Fleet) -> None:
    hosts = {f"gpu-{number}": OLD if number % 2 else GOOD for number in range(10)}
    fleet.tell(document(0, hosts))
    before = fleet.rows()
    for minute in range(1, 30):
        fleet.tell(document(minute, hosts))
    assert fleet.rows() == before
    assert {each.interval.last for each in fleet.answers()} == {at(29)}


def test_a_question_is_of_hosts_components_and_codes(fleet: Fleet) -> None:
    fleet.tell(document(0, {"gpu-1": (OLD, UNKNOWN), "gpu-2": OLD, "cpu-1": OLD}))
    assert {each.host for each in fleet.answers(hosts=("gpu-*",))} == {"gpu-1", "gpu-2"}
    assert [each.host for each in fleet.answers(components=("mig",))] == ["gpu-1"]
    assert len(fleet.answers(codes=("driver",))) == 3
    assert fleet.answers(codes=("driv",)) == []


def test_inventories_are_told_apart(place: Place) -> None:
    one, other = Fleet(place), Fleet(place)
    one.tell(document(0, {"gpu-1": OLD}))
    other.tell(document(0, {"gpu-1": GOOD}), document(5, {"gpu-1": GOOD, "gpu-2": GOOD}))
    assert other.so() == set() and len(one.so()) == 1
    with asking(place) as connection:
        found = {each.name: each for each in known(connection)}
        assert (found[other.name].hosts, found[other.name].records) == (2, 2)
        assert (found[other.name].first, found[other.name].last) == (at(0), at(5))
        assert one.name in {each.inventory for each in answers(connection, Question())}
        with pytest.raises(NothingError) as nothing:
            answers(connection, Question("prod"))
    assert unnamed(str(nothing.value), "prod") == []


def test_a_document_that_is_told_twice_changes_nothing(fleet: Fleet) -> None:
    both = document(0, {"gpu-1": GOOD}), document(10, {"gpu-1": OLD})
    known_before = []
    for _ in range(2):
        fleet.tell(*both)
        with asking(fleet.place) as connection:
            records = next(each.records for each in known(connection) if each.name == fleet.name)
        known_before.append((fleet.answers(), fleet.changed(), records))
    assert known_before[0] == known_before[1] and records == 2


KINDS = {
    "good": GOOD, "old": OLD, "older": OLDER, "unreached": UNREACHED, "not understood": NOT_UNDERSTOOD,
    "unknown": UNKNOWN,
}  # fmt: skip
# Each of them is a handful of transactions.
FEWER = settings(max_examples=max(1, EXAMPLES // 5))
Told = list[tuple[int, str]]
TOLD = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(list(KINDS))), unique_by=lambda each: each[0], min_size=1)


def so(documents: Told, minute: int) -> set[tuple[str, str, str | None]]:
    """Return what is so at a minute by documents of one host, each taken in its own order."""
    found: set[tuple[str, str]] = set()
    for when, kind in sorted(documents):
        if when > minute:
            break
        if kind == "good":
            found = set()
        elif kind in ("old", "older"):
            # The mig layout that was unknown is not told of any more.
            found = {("driver", str(KINDS[kind].actual))}
        elif kind == "unreached":
            found |= {("node", "none")}
        elif kind == "not understood":
            found = {each for each in found if each != ("node", "none")} | {("node", "not read")}
        else:
            found = {each for each in found if each[0] == "driver"} | {("mig", "unknown")}
    return {("gpu-1", *each) for each in found}


@FEWER
@given(TOLD.flatmap(lambda told: st.tuples(st.just(told), st.permutations(told))))
def test_in_whatever_order_reports_come_what_is_so_now_is_what_the_last_one_says(
    place: Place, both: tuple[Told, Told]
) -> None:
    fleet, (documents, mixed) = Fleet(place), both
    fleet.tell(*(document(minute, {"gpu-1": KINDS[kind]}) for minute, kind in mixed))
    assert fleet.so() == so(documents, 40)


@FEWER
@given(TOLD)
@example([(0, "old"), (10, "unreached"), (20, "good")])
@example([(0, "old"), (10, "not understood"), (20, "good")])
@example([(0, "old"), (10, "unknown"), (20, "good")])
def test_what_was_so_at_a_time_is_what_the_report_of_that_time_says(place: Place, documents: Told) -> None:
    fleet = Fleet(place)
    fleet.tell(*(document(minute, {"gpu-1": KINDS[kind]}) for minute, kind in sorted(documents)))
    for minute, _ in documents:
        assert fleet.so(minute) == so(documents, minute)


def test_many_agents_of_many_times_are_written_as_one_by_one(place: Place) -> None:
    at_once, one_by_one = Fleet(place), Fleet(place)
    hosts = {f"gpu-{number}": (number / 60, ((OLD if number % 3 else GOOD), PULLED)) for number in range(700)}
    at_once.collect(collected(20, hosts), collected(21, hosts))
    for name in ("gpu-0", "gpu-1", "gpu-699"):
        one_by_one.collect(collected(20, {name: hosts[name]}))
    known = {each.host: (each.interval.since, each.seen) for each in at_once.answers()}
    alone = {each.host: (each.interval.since, each.seen.replace(minute=21)) for each in one_by_one.answers()}
    assert len(known) == 466 and alone == {"gpu-1": known["gpu-1"]}


def test_what_is_over_is_pruned_by_age_and_what_is_so_stays(fleet: Fleet) -> None:
    fleet.tell(
        document(0, {"gpu-1": OLD, "gpu-2": OLDER, "gpu-3": OLD}), document(10, {"gpu-1": OLD, "gpu-2": GOOD}),
        document(20, {"gpu-1": OLD, "gpu-2": OLD}),
    )  # fmt: skip
    pruned = prune(fleet.place, at(15))
    # Other tests' fleets are in it, too.
    assert pruned.findings >= 2 and pruned.records >= 2 and pruned.hosts >= 1
    assert fleet.so() == {("gpu-1", "driver", "570.10"), ("gpu-2", "driver", "570.10")}
    assert next(iter(fleet.answers())).interval.since == at(0)
    assert fleet.so(5) == {("gpu-1", "driver", "570.10")}
    assert prune(fleet.place, at(15)).findings == 0


def test_a_report_of_a_time_that_has_not_come_is_forgotten(place: Place) -> None:
    laters = [{"gpu-1": OLDER, "gpu-2": OLD}, {"gpu-1": GOOD}, {"gpu-1": OLD}, {}]
    # The statements are the same ones; those to a server take ten times as long.
    for later, when in itertools.product(laters[:1] if place.url else laters, range(3)):
        fleet = Fleet(place)
        days = [document(0, {"gpu-1": GOOD}), document(20, {"gpu-1": OLD}), document(30, {"gpu-1": OLD})]
        days.insert(when + 1, document(5_000_000, later))
        fleet.tell(*days)
        forget(fleet.place, at(40))
        # When all was last good is overwritten by a later report of that.
        assert [each.partition(" good")[0] for each in known_lines(fleet.answers())] == ["gpu-1 driver 570.10 since 20"]
        fleet.tell(document(50, {"gpu-1": GOOD}))
        assert fleet.so() == set() and fleet.changed()[-2:] == ["20 began gpu-1", "50 ended gpu-1"]
        assert fleet.changed(60, 10_000_000) == []


def test_who_writes_prunes_once_a_day(fleet: Fleet) -> None:
    now = datetime.now(UTC)
    long_ago, ago = ((now - timedelta(days=days) - at(0)) / timedelta(minutes=1) for days in (400, 390))
    fleet.tell(document(long_ago, {"gpu-1": OLD}), document(ago, {"gpu-1": GOOD}))
    assert len(fleet.so(long_ago)) == 1
    fleet.tell(document(ago + 1, {"gpu-1": GOOD}), keep=timedelta(days=365))
    assert fleet.so(long_ago) == set()
    fleet.tell(document(long_ago, {"gpu-1": OLD}), keep=timedelta(days=365))
    # The day is not over.
    assert len(fleet.so(long_ago)) == 1


def test_hostile_texts_are_kept_as_texts(fleet: Fleet) -> None:
    nasty = "'); DROP TABLE gpunode_finding; --\0\ud800" + "x" * 5000
    fleet.tell(
        document(
            0,
            {
                "gpu-1'": Finding(
                    "driver", OLD.finding_class, "loaded module", nasty, nasty, code="driver.loaded-module"
                )
            },
        )
    )
    (found,) = fleet.answers()
    assert found.host == "gpu-1'" and found.interval.state.actual is not None
    assert found.interval.state.actual.startswith("'); DROP TABLE gpunode_finding; -- ")
    assert len(found.interval.state.actual) == 2000


def test_a_history_that_is_not_there_is_not_made_by_asking(tmp_path: Path) -> None:
    with pytest.raises(NothingError), asking(Place(tmp_path / "none.sqlite")):
        pass
    assert not list(tmp_path.iterdir())


def test_a_file_is_its_owner_s_alone_and_one_that_is_no_history_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "state" / "history.sqlite"
    record(Place(file), told(document(0, {"gpu-1": OLD})), "fleet")
    assert file.stat().st_mode & 0o777 == 0o600 and file.parent.stat().st_mode & 0o777 == 0o700
    other = tmp_path / "notes.txt"
    other.write_text("my notes, " * 200)
    with pytest.raises(HistoryError) as refused:
        record(Place(other), told(document(0, {"gpu-1": OLD})), "fleet")
    assert unnamed(str(refused.value), "notes.txt") == []
    assert other.read_text() == "my notes, " * 200


@pytest.mark.real
@pytest.mark.tier2
def test_a_server_s_refusals_are_told_and_no_password_is(
    server: postgresql.Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGPASSFILE", os.devnull)
    given, database = told(document(0, {"gpu-1": OLD})), server.make("refusals")
    for url, said in (
        (database, "no password supplied"),
        (database.replace("gpunode@", "gpunode:wr0ng@"), "password authentication failed"),
        (database.replace(f":{server.port}", ":1"), "refused"),
    ):
        with pytest.raises(HistoryError, match=said) as caught:
            record(Place(url=url), given, "fleet")
        assert "wr0ng" not in str(caught.value)
    monkeypatch.setenv("PGPASSFILE", str(server.passfile))
    with server.connect("refusals") as connection:
        connection.execute("CREATE USER reader PASSWORD 'r'")
    with pytest.raises(HistoryError, match="permission denied"):
        record(Place(url=database.replace("gpunode@", "reader:r@")), given, "fleet")
