"""The journal of a transaction."""

from __future__ import annotations

from gpunode.base.probe import Probe, shell_text
from gpunode.facts.base import UNITS, NodeFact
from gpunode.system.transaction import FOLDER as FOLDER
from gpunode.system.transaction import Journal, parse_journal


class TransactionJournal(NodeFact[Journal]):
    """Read how the last transaction of a name stands, and whether its unit is at work."""

    parse = staticmethod(parse_journal)

    def command(self, transaction: str) -> Probe:  # type: ignore[override]
        """Return the probe for `transaction`; what several ask of systemd is asked once."""
        unit = f"gpunode-{transaction}.service"
        text = shell_text("system/transaction", (UNITS.of(unit),), UNIT=unit, JOURNAL=f"{FOLDER}/{transaction}.json")
        return Probe([(None, text)])
