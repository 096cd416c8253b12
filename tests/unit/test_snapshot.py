"""One reading for many operations: fast where nothing changes, never outdated where something does."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyinfra.api.state import State
from pyinfra.context import ctx_host

from gpunode.base.probe import Probe, batch_answers, batch_command
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet.shared_readings import Snapshot, as_output
from gpunode.operations.phase import is_unattended
from tests.support.snapshot_node import Node, asking, shell

pytestmark = pytest.mark.pure


@pytest.fixture
def node() -> Node:
    node = Node(one="1", two="2", three="3")
    node.announce("one", "two", "three")
    return node


@pytest.mark.parametrize("missing", ["base64", "gzip"])
def test_a_node_that_cannot_decompress_a_question_is_asked_in_plain_text(
    node: Node, missing: str, tmp_path: Path
) -> None:
    for name in {"sh", "tr", "base64", "gzip"} - {missing}:
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    # A question completes PATH by the folders of programs.
    (tmp_path / missing).write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / missing).chmod(0o755)
    node.path = str(tmp_path)
    assert (node.ask("one"), node.ask("two")) == (["one=1"], ["two=2"])
    assert len(node.commands) == 4


TEXTS = (
    "printf '%s\\n' '\\0101 $x `y` !' \"a\\\\b\"",
    "printf é | od -c",
    "cat << E\n$((1 + 1))\n\tE\nE",
    'read -r line; echo "=$line"',
)


@pytest.mark.parametrize("program", ["sh", "bash", "busybox sh"])
@pytest.mark.parametrize("text", TEXTS)
def test_a_compressed_text_runs_as_it_was_written(program: str, text: str) -> None:
    plain = shell(f"export LC_ALL=C; {text}", shell=program)
    assert batch_answers([text], "m", shell(batch_command([text], "m"), shell=program)) == {text: plain}


def test_a_node_is_sent_few_characters() -> None:
    # sudo writes each command line to the node's log.
    assert len(batch_command(NodeFact().command().texts, "m")) <= 31_000


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


@pytest.mark.parametrize("later", [False, True], ids=["alone", "and a later reading"])
def test_a_reading_that_a_change_overtakes_is_not_kept(node: Node, later: bool) -> None:
    def meanwhile() -> None:
        node.during = lambda: None
        node.change(two="changed meanwhile")
        assert not later or node.ask("three") == ["three=3"]

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


@pytest.mark.parametrize("plan", [True, False])
def test_a_run_is_unattended_where_pyinfra_shows_no_plan(plan: bool) -> None:
    with ctx_host.use(SimpleNamespace(state=State(check_for_changes=plan))):
        assert is_unattended() != plan


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
    refusal = False, as_output(["no"])
    assert node.snapshot.read(asking("one"), "execute", "", False, lambda _: refusal) == refusal
    assert node.ask("one") == ["one=1"]


def test_a_batch_answers_as_each_probe_alone_does() -> None:
    probes = [asking("one"), asking("one", "two"), Probe([(None, "printf unfinished")]), Probe([(None, "true")])]
    texts = list(dict.fromkeys(text for probe in probes for text in probe.texts))
    answers = batch_answers(texts, "m", shell(batch_command(texts, "m")))
    assert answers is not None
    for probe in probes:
        assert [line for line in probe.lines(answers) if line] == [line for line in shell(probe) if line]


def test_neither_exit_nor_variables_nor_forged_boundaries_reach_the_next_probe_of_a_batch() -> None:
    forged = "echo 'gpunode:reading guess 1'; echo 'gpunode:reading guess end'"
    texts = ["leak=yes; echo a; exit 3", 'echo "leak=$leak"', forged]
    assert batch_answers(texts, "m", shell(batch_command(texts, "m"))) == {
        texts[0]: ["a"], texts[1]: ["leak="], texts[2]: ["gpunode:reading guess 1", "gpunode:reading guess end"],
    }  # fmt: skip


def test_what_travels_is_ascii_in_the_c_locale() -> None:
    printed = shell(Probe([(None, r"printf 'a\377\303\244b\n'; echo $LC_ALL")]))
    assert printed[:2] == ["ab", "C"]
    assert not re.search(r"[^\t\x20-\x7e]", "".join(printed))
