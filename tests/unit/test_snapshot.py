"""One reading for many operations: fast where nothing changes, never outdated where something does."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Callable

import pytest
from pyinfra.api.state import State

from gpunode.base.probe import Probe, batch_answers, batch_command
from gpunode.fleet import shared_readings
from gpunode.fleet.snapshot import MAX_AGE, Changes, Snapshot

pytestmark = pytest.mark.pure


def shell(command: str) -> list[str]:
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()


class Node:
    """A node of one fact per file name: it answers with what its `facts` hold at that moment, by way of a real sh."""

    def __init__(self, **facts: str) -> None:
        self.facts = facts
        self.commands: list[str] = []
        self.changes = Changes()
        self.now = 0.0
        self.snapshot: Snapshot[list[str]] = Snapshot(self.changes, clock=lambda: self.now)
        self.during: Callable[[], None] = lambda: None
        self.spoil: Callable[[list[str]], list[str]] = lambda lines: lines

    def run(self, command: str) -> tuple[bool, list[str]]:
        self.commands.append(command)
        settings = "".join(f"{name}='{value}'\n" for name, value in self.facts.items())
        lines = shell(settings + command)
        self.during()
        return True, self.spoil(lines)

    def ask(self, *names: str, stage: str = "execute", arguments: str = "", across: bool = False) -> list[str]:
        succeeded, lines = self.snapshot.read(asking(*names), stage, arguments, across, self.run, list, list)
        assert succeeded
        return [line for line in lines if line.startswith(("one=", "two=", "three="))]

    def announce(self, *names: str) -> None:
        for name in names:
            self.snapshot.announce(asking(name))

    def change(self, **facts: str) -> None:
        with self.changes.change():
            self.facts |= facts


def asking(*names: str) -> Probe:
    return Probe([(name if len(names) > 1 else None, f'echo "{name}=${name}"') for name in names])


@pytest.fixture
def node() -> Node:
    node = Node(one="1", two="2", three="3")
    node.announce("one", "two", "three")
    return node


def test_one_round_trip_answers_all_that_was_announced(node: Node) -> None:
    assert (node.ask("one"), node.ask("two"), node.ask("three")) == (["one=1"], ["two=2"], ["three=3"])
    assert len(node.commands) == 1


def test_what_has_no_room_in_a_command_line_is_asked_by_itself(node: Node) -> None:
    for number in range(5):
        node.snapshot.announce(Probe([(None, f"echo long={number}; : {'x' * 30_000}")]))
    assert (node.ask("one"), node.ask("two")) == (["one=1"], ["two=2"])
    assert len(node.commands) == 1 and 60_000 < len(node.commands[0]) < 131_072
    # As @chroot's connector puts it: a shell, chroot's own, and the local one.
    command = node.commands[0]
    for _ in range(2):
        command = f"sh -c {shlex.quote(command)}"
    assert shell(command) == shell(node.commands[0])


def test_what_time_alone_may_have_changed_is_asked_anew_where_that_is_asked_for(node: Node) -> None:
    node.ask("one", "two")
    node.facts["one"] = "9"
    assert node.ask("one") == ["one=1"]
    node.snapshot.forget()
    assert node.ask("one") == ["one=9"]


def test_without_an_announcement_each_question_is_one_round_trip() -> None:
    node = Node(one="1", two="2")
    assert (node.ask("one"), node.ask("two")) == (["one=1"], ["two=2"])
    assert len(node.commands) == 2


def test_a_reading_taken_before_a_change_is_never_served_after_it(node: Node) -> None:
    assert node.ask("one") == ["one=1"]
    node.change(two="changed")
    assert node.ask("two") == ["two=changed"]


def test_a_change_on_any_host_ends_the_readings_of_all(node: Node) -> None:
    other = Node(one="1", two="2")
    other.changes = node.changes
    other.snapshot = Snapshot(node.changes)
    other.announce("one", "two")
    other.ask("one")
    node.change(three="drained")
    other.facts["two"] = "drained too"
    assert other.ask("two") == ["two=drained too"]


def test_a_change_that_raises_counts_too(node: Node) -> None:
    node.ask("one")
    with pytest.raises(TimeoutError), node.changes.change():
        node.facts["two"] = "half changed"
        raise TimeoutError
    assert node.ask("two") == ["two=half changed"]


def test_a_reading_that_a_change_overtakes_is_not_kept(node: Node) -> None:
    node.during = lambda: node.change(two="changed meanwhile")
    assert node.ask("one") == ["one=1"]
    node.during = lambda: None
    assert node.ask("two") == ["two=changed meanwhile"]


def test_a_reading_that_a_change_and_a_later_reading_overtake_is_not_kept(node: Node) -> None:
    def meanwhile() -> None:
        node.during = lambda: None
        node.change(two="changed meanwhile")
        assert node.ask("three") == ["three=3"]

    node.during = meanwhile
    assert node.ask("one") == ["one=1"]
    assert node.ask("two") == ["two=changed meanwhile"]


def test_a_reading_taken_while_a_change_goes_on_is_not_used_after_it(node: Node) -> None:
    node.ask("one")
    with node.changes.change():
        node.ask("one")
        node.ask("three")
        node.facts["two"] = "changed last"
    assert node.ask("two") == ["two=changed last"]


def test_execution_does_not_use_what_preparation_read(node: Node) -> None:
    node.ask("one", stage="prepare")
    node.facts["two"] = "changed by someone while the plan was on the screen"
    assert node.ask("two")[0].endswith("on the screen")


def test_execution_uses_what_preparation_read_where_no_plan_was_shown_and_nothing_has_changed_since(node: Node) -> None:
    node.ask("one", stage="prepare", across=True)
    node.facts["two"] = "changed by someone a moment ago"
    assert node.ask("two", across=True) == ["two=2"]
    with node.changes.change():
        pass
    assert node.ask("two", across=True) == ["two=changed by someone a moment ago"]


def test_what_is_announced_is_fetched_at_once_in_execution_though_preparation_asked_for_some_of_it(node: Node) -> None:
    node.ask("one", "two", stage="prepare", across=True)
    with node.changes.change():
        pass
    before = len(node.commands)
    for name in ("one", "two", "three"):
        node.ask(name, across=True)
    assert len(node.commands) == before + 1


@pytest.mark.parametrize("plan", [True, False])
def test_a_run_is_unattended_where_pyinfra_shows_no_plan(plan: bool) -> None:
    assert shared_readings.is_unattended(State(check_for_changes=plan)) != plan


def test_a_reading_grows_too_old(node: Node) -> None:
    node.ask("one")
    node.facts["two"] = "changed by someone"
    node.now = MAX_AGE
    assert node.ask("two") == ["two=2"]
    node.now = MAX_AGE + 1
    assert node.ask("two") == ["two=changed by someone"]


def test_readings_with_and_without_sudo_are_kept_apart(node: Node) -> None:
    node.ask("one", arguments="sudo")
    node.facts["two"] = "as another user"
    assert node.ask("two") == ["two=as another user"]


@pytest.mark.parametrize(
    "spoil",
    [lambda lines: lines[:-1], lambda lines: [], lambda lines: [line for line in lines if "reading" not in line]],
)
def test_an_answer_that_is_not_whole_is_not_kept(node: Node, spoil: Callable[[list[str]], list[str]]) -> None:
    node.spoil = lambda lines: spoil(lines) if len(node.commands) == 1 else lines
    assert node.ask("one") == ["one=1"]
    node.facts["two"] = "fresh"
    assert node.ask("two") == ["two=fresh"]


def test_a_command_that_fails_is_handed_on_and_not_kept(node: Node) -> None:
    failed = node.snapshot.read(asking("one"), "execute", "", False, lambda _: (False, ["no"]), list, list)
    assert failed == (False, ["no"])
    assert node.ask("one") == ["one=1"]


def test_right_after_a_change_only_what_is_asked_is_read(node: Node) -> None:
    node.ask("one")
    node.change()
    node.ask("two")
    assert "three" not in node.commands[-1]


def test_what_was_asked_already_is_not_read_again(node: Node) -> None:
    node.ask("one")
    node.change()
    node.ask("two")
    node.ask("three")
    assert "$one" not in node.commands[-1]
    node.announce("one")
    node.change()
    node.ask("three")
    node.ask("two")
    assert "$one" in node.commands[-1]


def test_a_whole_node_serves_its_parts_and_the_other_way_round(node: Node) -> None:
    node.ask("one", "two")
    assert (node.ask("two"), node.ask("two", "three")) == (["two=2"], ["two=2", "three=3"])
    assert len(node.commands) == 1


def test_a_batch_answers_as_each_probe_alone_does() -> None:
    probes = [asking("one"), asking("one", "two"), Probe([(None, "printf unfinished")]), Probe([(None, "true")])]
    texts = list(dict.fromkeys(text for probe in probes for text in probe.texts))
    answers = batch_answers(texts, "m", shell(batch_command(texts, "m")))
    assert answers is not None
    for probe in probes:
        assert [line for line in probe.lines(answers) if line] == [line for line in shell(probe) if line]


def test_neither_exit_nor_variables_reach_the_next_probe_of_a_batch() -> None:
    texts = ["leak=yes; echo a; exit 3", 'echo "leak=$leak"']
    assert batch_answers(texts, "m", shell(batch_command(texts, "m"))) == {texts[0]: ["a"], texts[1]: ["leak="]}


def test_a_node_cannot_forge_the_boundaries_of_a_batch() -> None:
    texts = ["echo 'gpunode:reading guess 1'; echo 'gpunode:reading guess end'", "echo b"]
    answers = batch_answers(texts, "mark", shell(batch_command(texts, "mark")))
    assert answers == {texts[0]: ["gpunode:reading guess 1", "gpunode:reading guess end"], texts[1]: ["b"]}


def test_what_travels_is_ascii_in_the_c_locale() -> None:
    printed = shell(Probe([(None, r"printf 'a\377\303\244b\n'; echo $LC_ALL")]))
    assert printed[:2] == ["ab", "C"]
    assert not re.search(r"[^\t\x20-\x7e]", "".join(printed))
