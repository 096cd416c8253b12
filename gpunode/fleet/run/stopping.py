"""Whether an operation that failed ends the run on its host; pyinfra 3.10 calls `operation_host_error` for others, too.

It does so for one whose errors are ignored (`_ignore_errors`), behind which the host goes on, and for one that another
operation calls: by that it fails, or is tried again, or goes on.
"""

from __future__ import annotations

from pyinfra.api.host import Host
from pyinfra.api.state import State


def stops(state: State, host: Host, op_hash: str) -> bool:
    """Say whether an error of the operation ends the run on the host."""
    operation = state.ops.get(host, {}).get(op_hash)
    return operation is None or not (is_part(state, host, op_hash) or operation.global_arguments.get("_ignore_errors"))


def is_part(state: State, host: Host, op_hash: str) -> bool:
    """Say whether another operation has called this one."""
    operation = state.ops.get(host, {}).get(op_hash)
    return operation is not None and operation.parent_op_hash is not None
