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
        # One that has begun is asked about where its journal is read: another controller's may have begun in between.
        text = (
            f"active= by=; unit {shlex.quote(unit)} && {{\n"
            "  says ActiveState; active=$SAID; says Description; by=$SAID; }\n"
            f"if [ -e {path} ]; then\n"
            f'  if grep -qF \'"state": "began"\' {path}; then\n'
            f"    active=$(systemctl show -p ActiveState --value {shlex.quote(unit)})\n"
            f"    by=$(systemctl show -p Description --value {shlex.quote(unit)})\n"
            "  fi\n"
            f'  echo path={path}; echo "journal=$(base64 -w0 {path})"\n'
            "fi\n"
            '[ -z "$active" ] || { echo "unit=$active"; echo "by=$by"; }'
        )
        return Probe([(None, Text(text, (UNITS.of(unit),)))])
