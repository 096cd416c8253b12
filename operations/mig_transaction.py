"""The one transaction that brings a node's GPUs from one MIG layout to another, and back where that fails."""

from __future__ import annotations

from gpunode.operations.transaction import Transaction
from gpunode.shell_file import script_file

# For the transaction, its undoing, and the unit that runs at boot.
FUNCTIONS = script_file("mig_asking", "mig_holders", "mig_creating", "mig_reaching", "mig_cdi").strip()
TRANSACTION = Transaction("mig", f"{FUNCTIONS}\n{script_file('mig')}")

__all__ = ["FUNCTIONS", "TRANSACTION"]
