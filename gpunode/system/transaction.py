"""The journal of a transaction on a node: what an earlier run began, and how that ended."""

from __future__ import annotations

import json
from dataclasses import dataclass

from gpunode.base.document import newer
from gpunode.base.probe_output import decoded, values
from gpunode.base.reading import ParseError, Reading

FOLDER = "/var/lib/gpunode/transactions"
# Of the journal, as templates/scripts/transaction.sh writes it.
SCHEMA = 1
STATES = ("began", "done", "restored", "failed")


@dataclass(frozen=True)
class Journal(Reading):
    """Hold how the last transaction of a name stands.

    `state` is None where there was none yet, `began` while it runs or where it was interrupted, `done`, `restored` (it
    was undone for a cause outside it, such as a full disk, and may be tried again) or `failed` (its target was proven
    not to work; `reason` says how). `target` is the digest of what was to be reached. `running`: its unit is at work;
    `by` is what that says of itself, with who runs it.
    """

    state: str | None
    target: str | None
    reason: str | None
    running: bool
    by: str | None = None

    @property
    def interrupted(self) -> bool:
        """Say whether it was begun, has not ended and does not run: its checkpoint is to be put back."""
        return self.state == "began" and not self.running

    def failed_at(self, target: str) -> bool:
        """Say whether this very target was tried and proven not to work."""
        return self.state == "failed" and self.target == target


def parse_journal(lines: list[str]) -> Journal:
    """Parse the transaction probe's lines (facts/transaction.py)."""
    found = values(lines)
    if "unit" not in found:
        raise ParseError("systemd did not say whether the transaction runs")
    running = found["unit"] in ("active", "activating", "deactivating", "reloading")
    by = found.get("by") if running else None
    text = decoded(found, "journal")
    if text is None:
        return Journal(None, None, None, running, by)
    try:
        journal = json.loads(text)
        if reason := newer(journal, SCHEMA):
            raise ParseError(f"the journal {found.get('path')} cannot be read: {reason}")
        state, target, reason = journal["state"], journal["target"], journal.get("reason") or None
    except ParseError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"the journal is not readable ({error}); look at {found.get('path')} and remove it") from error
    if state not in STATES:
        raise ParseError(f"the journal says {state!r}, which is none of {', '.join(STATES)}; look at {found['path']}")
    return Journal(state, target, reason, running, by)
