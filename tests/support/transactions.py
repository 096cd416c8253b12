"""Transactions of a few lines, for the tests of what begins, proves, ends and undoes any of them."""

from __future__ import annotations

from gpunode.operations.transaction import Transaction


def of_bodies(checkpoint: str, change: str, restore: str, afterwards: str = ":") -> Transaction:
    """Return the transaction `t`, by what its functions do."""
    bodies = {"save": checkpoint, "change": change, "restore": restore, "afterwards": afterwards}
    return Transaction("t", "".join(f"\n{name}() {{\n{body.strip()}\n}}" for name, body in bodies.items()))
