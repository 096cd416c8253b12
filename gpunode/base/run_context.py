"""What a run knows, kept on the objects that pyinfra makes for the run: its State, its Inventory and each Host.

A module that keeps something during a run declares a `Slot` for it. The value lives as long as the object that it
belongs to, so two runs in one process share nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from pyinfra.api import Host, Inventory, State

    from gpunode.base.findings import Finding

    Owner = State | Inventory | Host

T = TypeVar("T")
_NAME = "gpunode_run_context"


class RunContext(dict["Slot[Any]", Any]):
    """The values of a run's slots, or of the slots of one host in the run."""


def run_context(owner: Owner) -> RunContext:
    """Return the context of a run (its State or Inventory) or of one of its hosts, created at the first call."""
    context = getattr(owner, _NAME, None)
    if not isinstance(context, RunContext):
        context = RunContext()
        setattr(owner, _NAME, context)
    return context


class Slot(Generic[T]):
    """One value that a run keeps; `initial` makes it when it is first read."""

    def __init__(self, initial: Callable[[], T]) -> None:
        self._initial = initial

    def of(self, owner: Owner) -> T:
        """Return the value of a run or a host; changes of a mutable value are kept."""
        context = run_context(owner)
        if self not in context:
            context[self] = self._initial()
        value: T = context[self]
        return value

    def set(self, owner: Owner, value: T) -> None:
        """Replace the value of a run or a host."""
        run_context(owner)[self] = value


# Variables of the environment: how many nodes the wave of a rollout has, which are unavailable together anyway; and by
# what name a node's lock has a run that is a command's child.
WAVE, RUN_NAME = "GPUNODE_WAVE", "GPUNODE_RUN"
# Whether the deploys of a host run to announce what they are going to read, and change nothing.
ANNOUNCING = Slot(bool)
# Whether a host's changes that failed before are tried again (disruption.retry).
RETRIES = Slot(bool)
# Why the operation that runs on a host fails: texts of the operation, outputs of its commands, or a finding.
FAILURE_REASONS: Slot[list[str | Finding]] = Slot(list)
# Why the last command on a host failed; empty where it did not.
COMMAND_ERROR: Slot[str] = Slot(str)
