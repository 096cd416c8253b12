"""The one transaction that brings a node's GPUs from one MIG layout to another, and back where that fails."""

from __future__ import annotations

from gpunode.base.shell_file import script_file
from gpunode.components.mig.files import FUNCTIONS
from gpunode.operations.transaction import Transaction

TRANSACTION = Transaction("mig", f"{FUNCTIONS}\n{script_file('mig')}")
