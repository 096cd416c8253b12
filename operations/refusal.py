"""Refuse a node, or leave it alone: the one operation that it gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.operations.failure import fail, node_operation


@node_operation
def refuse(reasons: list[str]) -> Iterator[Any]:
    """Fail this host with its reasons, and no other host.

    + reasons: one line each
    """
    yield fail("\n".join(f"refused: {reason}" for reason in reasons))


@node_operation
def leave_alone(reason: str) -> Iterator[Any]:
    """Say why nothing is done to this host, which is no failure.

    + reason: one line
    """
    host.noop(reason)
    yield from ()
