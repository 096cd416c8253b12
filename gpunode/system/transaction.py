"""The journal of a transaction on a node, and changes of earlier runs that were cut off or are at work now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from gpunode.base.comparison import RUN, finding_message
from gpunode.base.decision import Decision, Step, bad, behind
from gpunode.base.disruption import Disruption
from gpunode.base.document import newer
from gpunode.base.messages import command_error
from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.structured_text import TextError, load_json

FOLDER = "/var/lib/gpunode/transactions"
# Of the journal, as templates/scripts/transaction.sh writes it.
SCHEMA = 1
STATES = ("began", "done", "restored", "failed")
NODE_LOCKED = command_error(
    "run.node-locked", "The lock of a node could not be taken.",
    "One run at a time changes a node, from whichever controller and inventory. The message has who holds the lock, "
    "since when (by the node's clock), and which process on the node holds it. Nothing was changed.",
    remedy="wait until the other run has ended; end that process where its controller is gone for good",
)  # fmt: skip


@dataclass(frozen=True)
class Journal(Reading):
    """Hold how the last transaction of a name stands.

    `state` is None where there was none yet, `began` while it runs or where it was interrupted, `done`, `restored` (it
    was undone for a cause outside it, such as a full disk, and may be tried again) or `failed` (its target was proven
    not to work; `reason` says how). `target` is the digest of what was to be reached, `version` the one that was to be
    installed. `running`: its unit is at work; `by` is what that says of itself, with who runs it. `name`: the
    transaction's.
    """

    state: str | None
    target: str | None
    reason: str | None
    running: bool
    by: str | None = None
    version: str | None = None
    name: str = field(default="", compare=False)

    @property
    def interrupted(self) -> bool:
        """Say whether it was begun, has not ended and does not run: its checkpoint is to be put back."""
        return self.state == "began" and not self.running

    def failed_at(self, target: str, version: str | None = None) -> bool:
        """Say whether this very target was tried and proven not to work.

        version: the one that this run would install; None: it is the target's own
        """
        return self.state == "failed" and self.target == target and version in (None, self.version)

    @property
    def cause(self) -> str:
        """Return why it is not tried again."""
        return _FAILED.format(reason=self.reason or "no reason is recorded", name=self.name)

    @property
    def refusal(self) -> str:
        """Return why a run stops there, and what a person does."""
        return f"{self.name}: {self.cause}. Remedy: {RETRY}"


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
    return _journal(text, found.get("path", ""), running, by)


def _journal(text: str, path: str, running: bool = False, by: str | None = None) -> Journal:
    try:
        journal = load_json(text)
        if reason := newer(journal, SCHEMA):
            raise ParseError(f"the journal {path} cannot be read: {reason}")
        state, target = journal["state"], journal["target"]
        reason, version = journal.get("reason") or None, journal.get("version") or None
    except (TextError, KeyError, TypeError, AttributeError) as error:
        raise ParseError(f"the journal is not readable ({error}); look at {path} and remove it") from error
    if state not in STATES:
        raise ParseError(f"the journal says {str(state)[:40]!r}, which is none of {', '.join(STATES)}; look at {path}")
    return Journal(state, target, reason, running, by, version, path.rpartition("/")[2].removesuffix(".json"))


# A restore that no run makes by itself may remove what its owner has put there since.
BY_HAND = (
    f"where no run asks for it any more: on the node, `sh {FOLDER}/NAME.sh undo` puts back what was there before; or "
    f"`mv {FOLDER}/NAME.json {FOLDER}/NAME.given-up.json` keeps what is there now"
)

_HALF_DONE = "a run was cut off in the middle of it: what it was changing may be half done"
_RESTORED = f"{_HALF_DONE}; the next run restores what was there before, and starts again"
_NOT_RESTORED = f"{_HALF_DONE}, and no run of these settings restores what was there before"
_EITHER = f"{RUN}; {BY_HAND}"
INTERRUPTED = finding_message(
    "node",
    "interrupted changes",
    "A run was cut off in the middle of a change on this node.",
    "The change may be half done. The next run that makes it restores what was there before and starts again.",
    causes=(_RESTORED, _NOT_RESTORED),
    remedies=(_EITHER,),
)


RETRY = (
    "change the settings; or correct the cause on the node and run `gpunode apply --retry` (pyinfra: `--data "
    "gpunode_retry=1`)"
)
_FAILED = f"it was tried before and put back: {{reason}} ({FOLDER}/{{name}}.log on the node)"
FAILED = finding_message(
    "node",
    "failed change",
    "A change that the settings ask for failed on this node before, and was put back.",
    "It was proven not to work, so that no run tries it again: runs would undo it each time. Other settings, another "
    "kernel or an enrolled key are a new try by themselves.",
    causes=(_FAILED,),
    remedies=(RETRY,),
)


@dataclass(frozen=True)
class Interrupted(Reading):
    """Hold the names of the changes that nobody is at work on any more, and of those that somebody is.

    `stale` are those of changes that were cut off before they began, `left` paths of what was left beside files that
    were being written: both are gpunode's own, harm nobody, and go with the next run. `newer` are those whose journal a
    newer gpunode wrote: their state is not known. `failed` are the changes that failed and were put back.
    """

    names: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    failed: tuple[Journal, ...] = ()


def parse_interrupted(lines: list[str]) -> Interrupted:
    """Parse the lines of interrupted.sh, which describes them."""
    keys = ("interrupted", "running", "stale", "left", "newer")
    names, running, stale, left, newer = (tuple(dict.fromkeys(repeated(lines, key))) for key in keys)
    failed = tuple(
        _journal(text, name) for name, _, text in (line.partition(" ") for line in repeated(lines, "failed"))
    )
    return Interrupted(names, running, stale, left, newer, failed)


def refuse_failed(decision: Decision[Any], failed: Collection[Journal]) -> Decision[Any]:
    """Return the decision with a refusal where one of its steps would try again what failed before.

    The steps before it are carried out.
    """
    records = {record.target: record for record in failed}
    targets = [None if step.waits else step.target or getattr(step.change, "target", None) for step in decision.steps]
    again = next((target for target in targets if target in records), None)
    if again is None or decision.refusal is not None:
        return decision
    record, late = records[again], decision.steps[targets.index(again) :]
    found = behind(decision, f"the change of {record.name} failed before", lambda step: step in late, RETRY)
    item = FAILED.compared("put back", "none", False, of=f"of {record.name}", cause=record.cause)
    return replace(found, findings=(*found.findings, replace(item, by_person=True)), refusal=record.refusal)


def decide(actual: Interrupted, unasked: Collection[str] = ()) -> Decision[None]:
    """Return what is to be done about changes that began and that nobody is at work on: they are half done.

    unasked: names of those that no run comes to by these settings
    """
    names, left = (", ".join(name for name in actual.names if (name in unasked) is no) for no in (False, True))
    item = INTERRUPTED.compared(names or "none", "none", not names, cause=_RESTORED, disruption=Disruption.restart)
    steps: list[Step[None]] = [
        Step(f"put back what an earlier run began and did not end ({names})", (each,), Disruption.restart)
        for each in bad(item)
    ]
    if not left:
        return Decision((item,), tuple(steps))
    remedy = "; ".join(BY_HAND.replace("NAME", name) for name in left.split(", "))
    what = "of what is switched off"
    switched_off = INTERRUPTED.compared(left, "none", False, of=what, cause=_NOT_RESTORED, remedy=remedy)
    return Decision((item, switched_off), tuple(steps))
