"""Why nothing is known of a node, as the finding that drift, plan and the end of a run tell alike. Pure."""

from __future__ import annotations

from gpunode.base.findings import Finding, FindingClass
from gpunode.fleet.access import errors

_NOT_REACHED = "check address, key and known hosts"
_NOT_READ = "look at the node"


def unreached(reason: str | None) -> Finding:
    """Return the finding on a node that was not reached; reason: as pyinfra has it, or with its remedy behind it."""
    cause, remedy = errors.parted(errors.unreached(reason or "no connection"))
    return Finding("node", FindingClass.UNREACHABLE, "connection", "none", "ssh", cause, remedy or _NOT_REACHED)


def unreadable(reason: str | None) -> Finding:
    """Return the finding on a node whose answer cannot be used; reason: with its remedy behind it where it has one."""
    cause, remedy = errors.parted(reason)
    return Finding("node", FindingClass.ERROR, "state", "unreadable", "readable", cause, remedy or _NOT_READ)


def unjudged(error: Exception) -> Finding:
    """Return the finding on a node whose odd answer nobody thought of: it is that node's trouble and no other's."""
    cause = f"{type(error).__name__}: {error}"
    return Finding("node", FindingClass.ERROR, "state", "cannot be judged", None, cause, _NOT_READ)
