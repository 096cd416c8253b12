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


def _fleet() -> tuple[NodeReport, ...]:
    """Return 24 nodes: three with one difference, one with another, two with a caution."""
    different = {3: (RUNTIME,), 4: (RUNTIME,), 5: (RUNTIME,), 9: (MODULE,), 11: (KERNEL,), 12: (KERNEL,)}
    return tuple(NodeReport(f"gpu-{number}", (GOOD, *different.get(number, ()))) for number in range(1, 25))


@pytest.mark.parametrize("columns", [40, 80, 100, 160])
def test_a_fleet_of_24_is_told_in_few_lines_at_any_width(columns: int) -> None:
    text = report_text(_fleet(), show_all=False, columns=columns, call=Call("inventories/prod.py")) + "\n"
    assert text == (GOLDEN / f"{columns}.txt").read_text()


def test_where_nobody_looks_at_a_terminal_no_line_is_folded() -> None:
    text = report_text(_fleet(), show_all=False, call=Call("inventories/prod.py"))
    assert "  cause    somebody edited /etc/containerd/config.toml after gpunode did\n" in text
    assert "  remedy   run `pyinfra inventories/prod.py deploys/gpu_node.py`\n" in text


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


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "a"),
        (["gpu-1", "gpu-2"], "gpu-1, gpu-2"),
        (["gpu-08", "gpu-09", "gpu-10"], "gpu-08 to gpu-10"),
        (["gpu-9", "gpu-010", "gpu-011"], "gpu-9, gpu-010, gpu-011"),
        (["a1b", "a2b", "a3b"], "a1b, a2b, a3b"),
        (["rack1-7", "rack1-8", "rack1-9", "rack2-10"], "rack1-7 to rack1-9, rack2-10"),
    ],
)
def test_only_numbers_in_a_row_are_folded(names: list[str], text: str) -> None:
    assert folded(names) == text


def test_unbound_is_wider_than_any_text() -> None:
    assert len(report_text(_fleet(), show_all=True)) < UNBOUND
