"""Why nothing is known of a node, as the finding that drift, plan and the end of a run tell alike. Pure."""

from __future__ import annotations

from gpunode.base.comparison import finding_message
from gpunode.base.findings import Finding, FindingClass
from gpunode.fleet.access import errors

_NOT_REACHED, _NOT_READ = "check address, key and known hosts", "look at the node"
CONNECTION = finding_message(
    "node",
    "connection",
    "The node cannot be reached.",
    "There was no SSH connection, or no answer in time. Nothing is known of the node.",
    remedies=(_NOT_REACHED,),
    classes=(FindingClass.UNREACHABLE,),
)
STATE = finding_message(
    "node",
    "state",
    "The node answered, and its state cannot be judged.",
    "An answer was cut off or not understood, sudo is not allowed, or the judging failed. Nothing was changed.",
    remedies=(_NOT_READ,),
    classes=(FindingClass.ERROR,),
)


def unreached(reason: str | None) -> Finding:
    """Return the finding on a node that was not reached; reason: as pyinfra has it, or with its remedy behind it."""
    cause, remedy = errors.parted(errors.unreached(reason or "no connection"))
    return CONNECTION.finding(FindingClass.UNREACHABLE, "none", "ssh", cause=cause, remedy=remedy or _NOT_REACHED)


def unreadable(reason: str | None) -> Finding:
    """Return the finding on a node whose answer cannot be used; reason: with its remedy behind it where it has one."""
    cause, remedy = errors.parted(reason)
    return STATE.finding(FindingClass.ERROR, "unreadable", "readable", cause=cause, remedy=remedy or _NOT_READ)


def unjudged(error: Exception) -> Finding:
    """Return the finding on a node whose odd answer nobody thought of: it is that node's trouble and no other's."""
    cause = f"{type(error).__name__}: {error}"
    return STATE.finding(FindingClass.ERROR, "cannot be judged", cause=cause, remedy=_NOT_READ)
