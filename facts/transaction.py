"""The journal of a transaction."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.probe import Probe
from gpunode.transaction import Journal, parse_journal

FOLDER = "/var/lib/gpunode/transactions"


class TransactionJournal(NodeFact[Journal]):
    """Read how the last transaction of a name stands, and whether its unit is at work."""

    parse = staticmethod(parse_journal)

    def command(self, transaction: str) -> Probe:  # type: ignore[override]
        """Return the probe for `transaction`."""
        unit, path = shlex.quote(f"gpunode-{transaction}.service"), shlex.quote(f"{FOLDER}/{transaction}.json")
        return probe_command(
            f"systemctl show -p ActiveState {unit} | sed 's/^ActiveState=/unit=/'\n"
            f'[ -e {path} ] && {{ echo path={path}; echo "journal=$(base64 -w0 {path})"; }}'
        )
