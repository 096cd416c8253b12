"""Refuse a node: the one operation that it gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpunode.operations.failure import fail, node_operation


@node_operation
def refuse(reasons: list[str]) -> Iterator[Any]:
    """Fail this host with its reasons, and no other host.

    + reasons: one line each
    """
    yield fail("\n".join(f"refused: {reason}" for reason in reasons))
