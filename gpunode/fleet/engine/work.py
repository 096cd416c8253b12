"""What a worker does: it starts gpunode as a child on a part of an inventory, and returns what that printed.

Nothing here imports pyinfra, or anything that does: it patches the sockets of its process, and a worker's own would
stop working. What comes and goes is text: no key, and no object of ours.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpunode.base import parent_watch
from gpunode.base.errors import INTERRUPTED

_LINES = 6
# A command ends its run of pyinfra within as long (gpunode/fleet/run/child.py), and says so.
_SECONDS_TO_END = 22.0
# The name of each task that is at work here -> its child.
_children: dict[str, subprocess.Popen[bytes]] = {}


def end(names: Collection[str]) -> None:
    """End the commands of these tasks, as far as they are at work here, as Ctrl-C does; wait until they have."""
    children = [child for name in names if (child := _children.get(name)) is not None]
    for child in children:
        with suppress(ProcessLookupError):
            child.terminate()
    until = time.monotonic() + _SECONDS_TO_END
    for child in children:
        with suppress(subprocess.TimeoutExpired):
            child.wait(max(0.0, until - time.monotonic()))


def carry_out(text: str) -> str:
    """Carry out a task, and return its outcome, both as JSON (see `done`)."""
    # Late: the client imports this module only to name this function.
    from distributed import get_worker

    return json.dumps(done(json.loads(text), get_worker().local_directory))


def done(task: Mapping[str, Any], process: str) -> dict[str, Any]:
    """Return what became of a task: `document`, what the command printed; or `broken`, why it printed none.

    task: its `name`, words (of gpunode's), environment, and `only_by`, the process that it was given to, None where any
    may take it
    process: the folder of this worker's process, which no process that takes its address has
    """
    where = f"{socket.gethostname()}, process {os.getpid()}"
    if task["only_by"] not in (None, process):
        # It was begun by the process that was here before, and what changes nodes is not begun twice.
        return {"worker": where, "replaced": True, "broken": "the worker's process was replaced by another one"}
    program = Path(sys.executable).with_name("gpunode")
    if not program.is_file():
        return {"worker": where, "broken": f"there is no gpunode beside {sys.executable}: install it there"}
    # Ended with this process: what nobody waits for any more is not to go on beside what is begun in its place.
    child = subprocess.Popen(
        parent_watch.bound([str(program), *task["words"]]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # It does this part itself, whatever engine this worker's user has. What it tells goes into the history of the
        # controller, with all other parts.
        env={**os.environ, **task["environment"], "GPUNODE_ENGINE": "local", "GPUNODE_HISTORY": "none"},
    )
    _children[task["name"]] = child
    # The last lines of what the child says, however much that is.
    said: deque[bytes] = deque(maxlen=_LINES)
    assert child.stdout is not None and child.stderr is not None
    listening = threading.Thread(target=said.extend, args=(child.stderr,), daemon=True)
    listening.start()
    try:
        printed = child.stdout.read()
        status = child.wait()
    finally:
        del _children[task["name"]]
    listening.join()
    try:
        document = json.loads(printed)
    except ValueError:
        last = b"".join(said).decode(errors="replace").strip().splitlines()[-_LINES:]
        how = f"signal {-status}" if status < 0 else f"exit {status}"
        return {"worker": where, "broken": f"gpunode ended there ({how}){': ' if last else ''}{'; '.join(last)}"}
    if isinstance(document, dict) and document.get("code") == INTERRUPTED:
        # Somebody ended it, with its worker maybe: it came to no result.
        return {"worker": where, "broken": "gpunode was ended there"}
    return {"worker": where, "status": status, "document": document}
