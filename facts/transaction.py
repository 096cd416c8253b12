"""The journal of a transaction."""

from __future__ import annotations

import shlex

from facts.base import NodeFact
from facts.shared import UNITS
from gpunode.probe import Probe, Text
from gpunode.transaction import Journal, parse_journal

FOLDER = "/var/lib/gpunode/transactions"


class TransactionJournal(NodeFact[Journal]):
    """Read how the last transaction of a name stands, and whether its unit is at work."""

    parse = staticmethod(parse_journal)

    def command(self, transaction: str) -> Probe:  # type: ignore[override]
        """Return the probe for `transaction`; what several ask of systemd is asked once."""
        unit, path = f"gpunode-{transaction}.service", shlex.quote(f"{FOLDER}/{transaction}.json")
        text = (
            f"unit {shlex.quote(unit)} && {{\n"
            '  says ActiveState; echo "unit=$SAID"; says Description; echo "by=$SAID"\n}\n'
            f'[ -e {path} ] && {{ echo path={path}; echo "journal=$(base64 -w0 {path})"; }}'
        )
        return Probe([(None, Text(text, (UNITS.of(unit),)))])
