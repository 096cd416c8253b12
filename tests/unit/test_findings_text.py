"""What `gpunode drift` prints at several widths: golden texts, and nothing cut or lost whatever is found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.comparison import RUN
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.folding import UNBOUND
from gpunode.base.host_names import folded
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
