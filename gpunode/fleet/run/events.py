"""What a run of pyinfra tells of itself while it is at work: a line of JSON each, in a file that its parent reads.

A file, not a pipe: a parent that is slow or gone holds nothing up, and what was told stays beside the log.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from pyinfra.api.exceptions import ConnectError
from pyinfra.api.host import Host
from pyinfra.api.state import BaseStateCallback, State

from gpunode.base.structured_text import TextError, load_json


def stops(state: State, host: Host, op_hash: str) -> bool:
    """Say whether an error of the operation ends the run on the host.

    pyinfra 3.10 calls `operation_host_error` also for one whose errors are ignored (`_ignore_errors`), and for one that
    another operation calls: by that it fails, or is tried again, or goes on.
    """
    operation = state.ops.get(host, {}).get(op_hash)
    return operation is None or not (is_part(state, host, op_hash) or operation.global_arguments.get("_ignore_errors"))


def is_part(state: State, host: Host, op_hash: str) -> bool:
    """Say whether another operation has called this one."""
    operation = state.ops.get(host, {}).get(op_hash)
    return operation is not None and operation.parent_op_hash is not None


# Names the file, in the child's environment.
EVENTS = "GPUNODE_EVENTS"


def tell(kind: str, **about: Any) -> None:
    """Add a line to the parent's file, where there is a parent that asks for it; a run never fails for its being told.

    + kind: connected, unreached, judged, step, begun, done, failed, ignored, stepped, ended
    """
    if (path := os.environ.get(EVENTS)) is None:
        return
    line = json.dumps({"kind": kind, "at": time.time(), **about})
    # Opened for each line, and written at once: whole lines, whichever other process writes.
    with suppress(OSError), Path(path).open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())


def read(file: IO[bytes], rest: bytes = b"") -> tuple[list[dict[str, Any]], bytes]:
    """Return the events that came since the last call, and what of a line is there already.

    + rest: what the call before returned of it
    """
    *lines, rest = (rest + file.read()).split(b"\n")
    events = []
    for line in lines:
        # A disk may have been full for a moment.
        with suppress(TextError):
            event = load_json(line)
            if isinstance(event, dict) and isinstance(event.get("kind"), str):
                events.append(event)
    return events, rest


class Teller(BaseStateCallback):
    """Tell of a run as pyinfra calls back: hosts that are reached or not, and steps as hosts begin and end them.

    What a step calls is no step.
    """

    @staticmethod
    def host_connect(state: State, host: Host) -> None:
        tell("connected", host=host.name)

    @staticmethod
    def host_connect_error(state: State, host: Host, error: ConnectError) -> None:
        tell("unreached", host=host.name, reason=str(error))

    @staticmethod
    def operation_start(state: State, op_hash: str) -> None:
        order = state.get_op_order()
        hosts = [host.name for host in state.inventory.get_active_hosts() if op_hash in state.ops[host]]
        tell("step", name=_name(state, op_hash), number=order.index(op_hash) + 1, steps=len(order), hosts=hosts)

    @staticmethod
    def operation_host_start(state: State, host: Host, op_hash: str) -> None:
        if op_hash in state.ops[host] and not is_part(state, host, op_hash):
            tell("begun", host=host.name)

    @staticmethod
    def operation_host_success(state: State, host: Host, op_hash: str, retry_count: int = 0) -> None:
        if not is_part(state, host, op_hash):
            tell("done", host=host.name)

    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Tell that the step failed on a host, and nothing behind it is begun there; or that its error is ignored."""
        if not is_part(state, host, op_hash):
            tell("failed" if stops(state, host, op_hash) else "ignored", host=host.name)

    @staticmethod
    def operation_end(state: State, op_hash: str) -> None:
        """Tell on which hosts the step changed something; only now pyinfra knows."""
        found = {
            host.name: state.ops[host][op_hash].operation_meta for host in state.inventory if op_hash in state.ops[host]
        }
        tell("stepped", changed=[name for name, meta in found.items() if meta.is_complete() and meta.did_change()])


def _name(state: State, op_hash: str) -> str:
    return ", ".join(sorted(state.get_op_meta(op_hash).names)) or "an operation"
