"""What `gpunode drift` prints at several widths: golden texts, and nothing cut or lost whatever is folded."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.comparison import RUN
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.folding import UNBOUND, fold, fold_lines
from gpunode.base.host_names import folded, folded_in_a_line
from gpunode.fleet.call import Call
from gpunode.fleet.reports.findings_text import report_text

pytestmark = pytest.mark.pure
GOLDEN = Path(__file__).parent / "data" / "findings_text"
CALL = Call("inventories/prod.py")
GOOD = Finding("driver", FindingClass.OK, "flavour", "open", "open")
RUNTIME = Finding(
    "containerd", FindingClass.DRIFT, "default runtime", "runc", "nvidia",
    "somebody edited /etc/containerd/config.toml after gpunode did", RUN, disruption=Disruption.restart,
)  # fmt: skip
MODULE = Finding(
    "driver", FindingClass.REBOOT_PENDING, "loaded module", "570.172.08 (open)", "580.95.05 (open)",
    "the driver was changed while the old module was loaded", "drain and reboot the node", disruption=Disruption.reboot,
)  # fmt: skip
KERNEL = Finding(
    "driver", FindingClass.OK, "held packages", "held", "held", "the kernel is not held", "set hold_kernel"
)
# Three with one difference, one with another, two with a caution.
DIFFERENT = {3: RUNTIME, 4: RUNTIME, 5: RUNTIME, 9: MODULE, 11: KERNEL, 12: KERNEL}
FLEET = tuple(NodeReport(f"gpu-{number}", (GOOD, *filter(None, [DIFFERENT.get(number)]))) for number in range(1, 25))


@pytest.mark.parametrize("columns", [40, 80, 100, 160])
def test_a_fleet_of_24_is_told_in_few_lines_at_any_width(columns: int) -> None:
    text = report_text(FLEET, show_all=False, columns=columns, call=CALL) + "\n"
    assert text == (GOLDEN / f"{columns}.txt").read_text()


def test_where_nobody_looks_at_a_terminal_no_line_is_folded() -> None:
    lines = report_text(FLEET, show_all=False, call=CALL).splitlines()
    assert {f"  cause    {RUNTIME.cause}", f"  remedy   run `{CALL.run}`"} <= set(lines)
    assert len(report_text(FLEET, show_all=True)) < UNBOUND


WORDS = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=60)
TEXTS = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)
FINDINGS = st.builds(
    Finding, component=WORDS, finding_class=st.sampled_from(FindingClass), what=TEXTS, actual=TEXTS, desired=TEXTS,
    cause=st.none() | TEXTS, remedy=st.none() | TEXTS,
)  # fmt: skip


@given(st.lists(st.lists(FINDINGS, max_size=3), min_size=1, max_size=4), st.integers(40, 160))
def test_no_word_is_cut_or_lost_and_only_a_long_word_is_wider_than_the_terminal(
    found: list[list[Finding]], columns: int
) -> None:
    reports = tuple(NodeReport(f"gpu-{number}", tuple(items)) for number, items in enumerate(found))
    text = report_text(reports, show_all=True, columns=columns)
    words = set(text.split())
    for item in (item for items in found for item in items):
        told = [item.actual, item.cause, item.remedy] if item.is_caution else [item.actual]
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
