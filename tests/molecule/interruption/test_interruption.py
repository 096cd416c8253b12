"""A run is interrupted; the next one ends in the same state as an undisturbed one. SIMULATED: GPUs, the full disk.

A sample by default; all operations, faults and moments with GPUNODE_TEST_ALL=1 (`make test-all`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpunode.lab.nodes import Node
from tests.molecule.conftest import report
from tests.molecule.interruption.cases import Case, bench, lived, outcome, undisturbed
from tests.molecule.interruption.faults import FAULTS

ALL = os.environ.get("GPUNODE_TEST_ALL") == "1"

# Operations that take long enough to be struck in their middle.
_LONG = ("Install", "Trust", "Configure", "Load the NVIDIA")


def every_case(names: Sequence[str]) -> list[Case]:
    """Return a case for each fault at each boundary, and in the middle of each operation that takes a while."""
    return [
        Case(number, name, moment, fault)
        for number, name in enumerate(names)
        for fault in FAULTS
        for moment in ("before", "during")
        if moment == "before" or name.startswith(_LONG)
    ]


def sample(names: Sequence[str]) -> list[Case]:
    """Return a case per twelfth operation, faults and moments in turn, and all faults of containerd's transaction."""
    cases = every_case(names)
    chosen = []
    for turn, number in enumerate(range(1, len(names), 12)):
        here = [case for case in cases if case.operation == number and case.fault == FAULTS[turn % len(FAULTS)]]
        chosen.append(here[-1 if turn % 3 else 0])
    within = [case for case in cases if case.name.startswith("Configure containerd") and case.moment == "during"]
    return [*chosen, *(case for case in within if case not in chosen)]


def table(results: dict[Case, str]) -> str:
    """Return operations by faults: what was struck, and whether it healed."""
    rows = [" | ".join(("operation", "moment", *FAULTS))]
    for number, name, moment in dict.fromkeys((case.operation, case.name, case.moment) for case in results):
        cells = []
        for fault in FAULTS:
            verdict = results.get(Case(number, name, moment, fault))
            cells.append("-" if verdict is None else "healed" if verdict == "healed" else "FAILED")
        rows.append(" | ".join((f"{number}: {name}", moment, *cells)))
    return "\n".join(rows)


@pytest.mark.node
@pytest.mark.simulated
def test_the_next_run_ends_where_an_undisturbed_one_does(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    benches = [bench(node, tmp_path) for node in nodes]
    names, wanted = undisturbed(benches[0])
    log = report("interruption.txt")
    cases = every_case(names) if ALL else sample(names)
    results = lived(cases, benches, lambda case, mine: outcome(case, mine, wanted), log)
    shown = table(results)
    log.write_text(shown + "\n")
    print(shown)
    unhealed = {str(case): verdict for case, verdict in results.items() if verdict != "healed"}
    assert unhealed == {}, shown + "\n" + "\n".join(f"{case}: {verdict}" for case, verdict in unhealed.items())
