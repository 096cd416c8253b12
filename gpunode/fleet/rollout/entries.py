"""The entries of a rollout's journal, in the form in which they stand on disk: one JSON object a line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from pydantic_core import from_json

from gpunode.base.document import UPDATE, newer
from gpunode.base.findings import FindingClass
from gpunode.base.messages import command_error, with_code

# Of a journal: the newest that is read.
FORMAT = 1


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Policy(_Part):
    """Hold how the nodes are taken: who goes first, how many at once, how many may fail."""

    canaries: tuple[str, ...]
    max_unavailable: int = Field(ge=1)
    failure_budget: int = Field(ge=0)


class LeftOut(_Part):
    """Hold why a node is not touched by the rollout."""

    finding_class: FindingClass
    reason: str
    code: str | None = None

    @property
    def is_negative(self) -> bool:
        """Return whether the exit code is not 0 because of it: not of what no setting asks for, which has no code."""
        return self.code is not None or self.finding_class not in (FindingClass.OK, FindingClass.NOT_KNOWN)

    @property
    def told(self) -> str:
        """Return the reason with its code; a node that is as desired has none."""
        return self.reason if self.code is None else with_code(self.reason, self.code)


class Outcome(_Part):
    """Hold what the gate said of a node after its wave; `reason`, `remedy` and `code` where it did not pass."""

    finding_class: FindingClass
    passed: bool
    reason: str | None = None
    remedy: str | None = None
    code: str | None = None


class Begun(_Part):
    """Open a journal. `hosts` maps each host of the inventory, or of --limit, to its fingerprint.

    `nodes` are taken in their order.
    `cluster` is how the cluster was, which passes where it is as desired or a wave mends it; null without one.
    Of `together` each group goes in one wave, or not at all.
    `settings` are the words behind --set as they may be shown; null in a journal of a gpunode that did not note them.
    `format` is raised when a key goes away or changes its meaning.
    """

    entry: Literal["begun"] = "begun"
    format: Literal[1] = 1
    gpunode: str
    inventory: str
    at: datetime
    hosts: dict[str, str]
    policy: Policy
    nodes: tuple[str, ...]
    left_out: dict[str, LeftOut]
    together: tuple[tuple[str, ...], ...] = ()
    limit: tuple[str, ...] = ()
    settings: tuple[str, ...] | None = None
    cluster: Outcome | None = None


WaveKind = Literal["canary", "wave", "retry"]


class WaveBegun(_Part):
    """Stand before a wave's run: from here on its nodes may be in any state."""

    entry: Literal["wave begun"] = "wave begun"
    number: int
    kind: WaveKind
    nodes: tuple[str, ...]
    at: datetime


class WaveEnded(_Part):
    """Close a wave with the outcomes of its gate; `cluster`: of the cluster, None where the wave has no node of one."""

    entry: Literal["wave ended"] = "wave ended"
    number: int
    outcomes: dict[str, Outcome]
    cluster: Outcome | None = None
    at: datetime


# Of a rollout that stopped by its own judgement.
STOPPED = command_error(
    "rollout.stopped",
    "The rollout stopped: a canary failed, too many nodes failed or are unavailable, or the cluster is not as desired.",
    "Nodes that no wave has taken are unchanged. Each failed node is listed with the findings of the gate.",
    remedy="correct what failed, and go on with `gpunode rollout --resume`: it tries failed nodes again, and after a "
    "stop for the cluster the last wave's nodes",
    exit="2, or 1 where a node did not answer",
)  # fmt: skip


class Ended(_Part):
    """Close a journal, or say why nothing more came for a while."""

    entry: Literal["ended"] = "ended"
    how: Literal["finished", "stopped", "paused", "interrupted"]
    reason: str | None = None
    at: datetime

    @property
    def code(self) -> str | None:
        """Return what `gpunode explain` knows the end by; None where nothing stopped it."""
        return STOPPED if self.how == "stopped" else None


class Resumed(_Part):
    """Say that somebody went on: nodes that failed before a stop are tried again."""

    entry: Literal["resumed"] = "resumed"
    at: datetime


Entry = Annotated[Begun | WaveBegun | WaveEnded | Ended | Resumed, Field(discriminator="entry")]
_ENTRY: TypeAdapter[Begun | WaveBegun | WaveEnded | Ended | Resumed] = TypeAdapter(Entry)


def now() -> datetime:
    """Return the time of an entry: in UTC, in whole seconds."""
    return datetime.now(UTC).replace(microsecond=0)


def read_entry(line: bytes) -> Begun | WaveBegun | WaveEnded | Ended | Resumed:
    """Return the entry in a line; raise ValueError, as well where its format is not known."""
    found = from_json(line)
    if isinstance(found, dict) and (reason := newer(found, FORMAT, "format")):
        raise ValueError(f"{reason}; {UPDATE}")
    return _ENTRY.validate_json(line)
