"""What commands print: one snapshot per view at 80 columns; other widths fit, and equal nodes are listed together."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import cli
from gpunode.base.findings import Finding, FindingClass, NodeReport, NodeSummary
from gpunode.base.folding import UNBOUND, fold, fold_lines, folded, folded_in_a_line
from gpunode.cli.errors import complain
from gpunode.cli.mig import as_text
from gpunode.components.mig.check import check, target
from gpunode.fleet.access import errors
from gpunode.fleet.call import Call
from gpunode.fleet.reports.findings_text import report_text
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.fleet.reports.run_end import BROKEN_OFF
from gpunode.node.plan import Plan
from gpunode.settings.mig_parted.declaration import read_declaration
from tests.support.cases import build
from tests.support.command_line import gpunode
from tests.support.snapshots import COLUMNS, DATA, check_snapshot, overlong

pytestmark = pytest.mark.pure
T = TypeVar("T")
# Whose order nobody can guess: such names cannot be told by the first and the last.
IRREGULAR = [f"{word}{number}" for number in (7, 3, 19) for word in ("apollo", "zeus", "hera", "ares", "dione", "eos")]


def _data(kind: type[T], file: str) -> dict[str, T]:
    found: dict[str, T] = build(dict[str, kind], yaml.safe_load((DATA / file).read_text()))  # type: ignore[valid-type]
    return found


PLANS = _data(Plan, "plan_text/plans.yaml")
CHANGES, DONE, REFUSED, UNKNOWN = (PLANS[name] for name in ("changes", "done", "refused", "unknown"))
BOOT = CHANGES.steps[1]
LATER = replace(CHANGES, steps=(CHANGES.steps[0], replace(BOOT, since="2026-01-10T09:30:00Z"), CHANGES.steps[2]))


def _fleet() -> dict[str, Plan | Finding]:
    """Return the plans of 35 nodes, of which few say something of their own."""
    numbered: dict[str, Plan | Finding] = {f"gpu-{number}": CHANGES for number in range(1, 13)}
    return {
        **numbered,
        "gpu-5": LATER,
        "gpu-9": REFUSED,
        "gpu-10": REFUSED,
        "gpu-11": UNKNOWN,
        "gpu-12": replace(CHANGES, steps=(*CHANGES.steps, *UNKNOWN.steps)),
        **dict.fromkeys(IRREGULAR, DONE),
        "gpu-40": errors.unreached("timed out after 120 s"),
        "gpu-41": errors.unreached("timed out after 120 s"),
    }


FINDINGS = _data(Finding, "findings_text/findings.yaml")
# Three with one difference, one with another, two with a caution, two of which something is not known, and one with
# a remedy that others have, too.
DIFFERENT = {
    3: "runtime", 4: "runtime", 5: "runtime", 9: "module", 11: "kernel", 12: "kernel", 14: "unknown", 15: "unknown",
    17: "boot",
}  # fmt: skip
# Of a node on which no run was recorded; gpu-17 is one, and so is gpu-16, which is as desired.
BARE = NodeSummary("Debian GNU/Linux 13", "6.12.0", None, None, None, None, ("H100",), 1, 0, None)
FLEET = tuple(
    NodeReport(
        f"gpu-{number}",
        tuple(FINDINGS[name] for name in ("good", DIFFERENT.get(number)) if name),
        BARE if number in (16, 17) else replace(BARE, gpunode="1.0"),
    )
    for number in range(1, 25)
)

WRONG = {
    "fleet.py": 'gpus = ["gpu-1", "gpu-2"]\n',
    "wrong.py": 'gpus = [("gpu-1", {"driver": {"source": "elsewhere", "brnch": "580"}}), ("gpu-2", {"toolkit": 1})]\n',
    "site.yaml": "version: v1\nmig-configs:\n  all:\n    - devices: some\n      mig-enabled: 1\n",
}
COMMANDS = (
    "check wrong.py", "check fleet.py --limit gpu-3", "check nowhere.py", "plan", "mig check site.yaml",
    "rollout --resume fleet.py", "explain driver.loaded-modul", "drift fleet.py --junit nowhere/report.xml",
)  # fmt: skip


def _mig(columns: int, folder: Path) -> str:
    declaration = replace(read_declaration(DATA / "mig_text" / "site.yaml"), source="site.yaml")
    return as_text(check(declaration, tuple(declaration.configs), target("H100-80GB")), columns) + "\n"


def _check(columns: int, folder: Path) -> str:
    old = {"driver": {"branch": "999"}}
    hosts = [*((f"gpu-{number}", old) for number in range(1, 9)), *((name, {}) for name in IRREGULAR)]
    (folder / "fleet.py").write_text(f"nodes = {hosts!r}\n")

    def printed(*options: str) -> str:
        words = ["check", *options, str(folder / "fleet.py")]
        return CliRunner().invoke(cli.gpunode, words, env={"COLUMNS": str(columns)}).stdout

    assert all(name in printed("--output", "tty", "--all") for name in IRREGULAR)
    assert len(json.loads(printed("--json"))["hosts"]) == 26
    return printed("--output", "tty")


def _errors(columns: int, _: Path) -> str:
    ended = {words: gpunode(f"{words} --output tty", WRONG, {"COLUMNS": str(columns)}) for words in COMMANDS}
    assert {done.status for done in ended.values()} == {1, 3, 64}
    return "\n".join(f"$ gpunode {words}\n{done.error}" for words, done in ended.items())


VIEWS = {
    "plan_text": lambda columns, _: plan_text(_fleet(), columns, Call("inventories/prod.py")) + "\n",
    "findings_text": lambda columns, _: report_text(FLEET, False, columns, Call("inventories/prod.py")) + "\n",
    "mig_text": _mig,
    "check_text": _check,
    "errors_text": _errors,
}


@pytest.mark.parametrize("columns", [40, COLUMNS, 160])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_and_reads_as_its_snapshot(view: str, columns: int, tmp_path: Path) -> None:
    text = VIEWS[view](columns, tmp_path)
    # What was typed is no part of it.
    assert [line for line in overlong(text, columns) if not line.startswith("$ ")] == []
    if columns == COLUMNS:
        check_snapshot(view, text)


def test_a_plan_names_every_node_where_all_are_asked_for_or_nobody_looks() -> None:
    for text in (plan_text(_fleet(), 80, show_all=True), plan_text(_fleet(), UNBOUND)):
        assert all(name in text for name in IRREGULAR) and "more nodes" not in text
    assert "and 10 more nodes: nothing to do" in " ".join(plan_text(_fleet(), 80).split())


def test_a_quiet_plan_tells_what_cannot_be_done_and_nothing_else() -> None:
    lines = plan_text(_fleet(), quiet=True).splitlines()
    # The first eight have a step that a run leaves pending.
    assert [line for line in lines if not line.startswith(" ")] == [
        "gpu-1 to gpu-8: can be done, disruption: restart",
        "gpu-9, gpu-10: refused", "gpu-11: 1 not known, nothing else to do",
        "gpu-12: can be done, disruption: restart, 1 not known",
        "gpu-40, gpu-41: no answer: timed out after 120 s [node.connection]",
    ]  # fmt: skip
    whole = replace(CHANGES, steps=tuple(step for step in CHANGES.steps if not step.pending))
    assert plan_text({"a": DONE, "b": whole}, quiet=True) == ""


# A command to paste, longer than any width but the last.
CALL = Call("inventories/production.py", ("gpu-1",), ("driver.version=580.95.05",))


@pytest.mark.parametrize("columns", [40, COLUMNS, 100, 160])
def test_a_command_in_an_error_stays_in_one_piece(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpunode.cli.errors.error_columns", lambda: columns)
    again = f"`{CALL.of('rollout', '--resume')}`"
    complain(f"the last rollout was broken off: go on with it by {again}, or not", BROKEN_OFF)
    said = capsys.readouterr().err
    assert again in said and said.endswith("[run.broken-off]\n")
    assert overlong(said, columns) == []
    assert len(said.splitlines()) > 1 or columns == 160


# Nothing is cut or lost whatever is folded.

WORDS = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=60)
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)
ANY_FINDING = st.builds(
    Finding, component=WORDS, finding_class=st.sampled_from(FindingClass), what=TEXTS, actual=TEXTS, desired=TEXTS,
    cause=st.none() | TEXTS, remedy=st.none() | TEXTS,
)  # fmt: skip


def test_a_remedy_is_printed_once_and_where_all_is_shown_with_each_finding() -> None:
    runtime, boot, module = (FINDINGS[name] for name in ("runtime", "boot", "module"))
    reports = (NodeReport("gpu-1", (runtime, module)), NodeReport("gpu-2", (replace(runtime, actual="crun"), boot)))
    command = CALL.of("apply")
    short, every = (report_text(reports, show_all, call=CALL).split("\n") for show_all in (False, True))
    assert [sum(command in line for line in lines) for lines in (short, every)] == [1, 3]
    # The three that have it come together, and the other one keeps its own.
    heads = [line.partition(":")[0] for line in short if line.endswith("]")]
    assert heads == ["containerd", "containerd", "containerd", "driver"]
    assert any(line.split()[:1] == ["remedy"] and str(module.remedy) in line for line in short)


@pytest.mark.parametrize(
    ("report", "first"),
    [
        (NodeReport("gpu-1", (FINDINGS["boot"],), BARE), True),
        (NodeReport("gpu-1", (FINDINGS["boot"],), replace(BARE, gpunode="1.0")), False),
        (NodeReport("gpu-1", (FINDINGS["good"],), BARE), False),
        # No run is made on a node that is refused or did not answer.
        (NodeReport("gpu-1", (errors.unreached("timed out"),)), False),
        (NodeReport("gpu-1", (replace(FINDINGS["boot"], finding_class=FindingClass.UNSUPPORTED),), BARE), False),
    ],
)
def test_a_node_that_differs_and_has_no_record_begins_with_the_command_of_a_run(
    report: NodeReport, first: bool
) -> None:
    assert (f"`{CALL.of('apply')}`" in report_text((report,), False, call=CALL).split("\n")[0]) is first


@given(st.lists(st.lists(ANY_FINDING, max_size=3), min_size=1, max_size=4), st.integers(40, 160), st.booleans())
def test_no_word_is_cut_or_lost_and_only_a_long_word_is_wider_than_the_terminal(
    found: list[list[Finding]], columns: int, show_all: bool
) -> None:
    reports = tuple(NodeReport(f"gpu-{number}", tuple(items)) for number, items in enumerate(found))
    text = report_text(reports, show_all, columns)
    words = set(text.split())
    for item in (item for items in found for item in items):
        told = [item.actual, item.cause, item.remedy] if item.is_caution else [item.actual] * show_all
        if item.finding_class is not FindingClass.OK:
            told = [item.actual, item.desired, item.cause, item.remedy]
        for text_of in told:
            assert set((text_of or "").split()) <= words
    for line in text.splitlines():
        assert len(line) <= columns or len(line.split()) <= 3


@given(st.lists(st.sampled_from([f"gpu-{number}" for number in range(30)]), unique=True, max_size=30))
def test_folded_names_are_the_names(names: list[str]) -> None:
    found: list[str] = []
    for part in folded(names).split(", ") if names else []:
        first, _, last = part.partition(" to ")
        numbers = [int(re.sub(r"\D", "", each)) for each in (first, last or first)]
        found += [f"gpu-{number}" for number in range(numbers[0], numbers[1] + 1)]
    assert found == names


NAMES = st.lists(st.from_regex(r"[a-z]{1,12}[0-9]{0,4}", fullmatch=True), unique=True, min_size=1, max_size=60)


@given(NAMES, st.integers(1, 200))
def test_names_in_a_line_are_the_first_and_the_number_of_the_others(names: list[str], columns: int) -> None:
    text = folded_in_a_line(names, columns)
    if text == folded(names):
        return
    shown, _, rest = text.rpartition(" and ")
    (left,) = re.fullmatch(r"(\d+) more nodes", rest).groups()  # type: ignore[union-attr]
    kept = len(names) - int(left)
    assert kept > 0 and shown == folded(names[:kept]) and int(left) > 1
    assert len(text) <= max(80, columns) or len(shown) >= len(names[0])


@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=30), st.integers(4, 40))
def test_a_folded_text_has_every_word_whole_and_colours_take_no_room(words: list[str], columns: int) -> None:
    plain = fold(" ".join(words), columns, "  ")
    assert plain.split() == words
    assert all(len(line) <= columns or len(line.split()) == 1 for line in plain.splitlines())
    coloured = fold(" ".join(f"\x1b[31m{word}\x1b[0m" for word in words), columns, "  ")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain


LINES = st.lists(st.text("ab ", min_size=1, max_size=60), min_size=1, max_size=6)


@given(LINES, st.integers(4, 80))
def test_each_line_of_an_error_is_folded_under_itself_and_every_word_is_there(lines: list[str], columns: int) -> None:
    told = fold_lines("\n".join(lines), columns)
    assert told.split() == " ".join(lines).split()
    at = 0
    for line in lines:
        indent = len(line) - len(line.lstrip(" "))
        rows = told.split("\n")[at:]
        # What goes on of it stands deeper than it; the next line of the text begins anew.
        words = line.split()
        taken: list[str] = []
        for row in rows:
            taken += row.split()
            at += 1
            assert row is rows[0] or re.match(f" {{{indent + 2}}}[^ ]", row)
            if taken == words:
                break
        assert taken == words
