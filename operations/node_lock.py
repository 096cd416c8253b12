"""The lock of a node: one run at a time changes it, from whichever controller, inventory or agent.

The first operation of a run that may change the node takes it. A process on the node holds it as long as the run's
connection lives, so a controller that dies leaves no lock behind; after a boot the next operation takes it again. A
transaction outlives the connection, and the next run waits for it (operations/transaction.py).

Another run is refused, because the other one may change what its plan was made of. An agent's pull is waited for, and a
wave of a rollout waits for any holder: the run of a controller that died may still be ending.
"""

from __future__ import annotations

import getpass
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyinfra.api import Host, StringCommand
from pyinfra.api.arguments import CONNECTOR_ARGUMENT_KEYS
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.util import extract_control_arguments, make_unix_command_for_host
from pyinfra.context import ctx_host

from gpunode.agent.pull import PATIENCE, Places
from gpunode.base.explanations import OWN_CAUSE, OWN_REMEDY
from gpunode.base.folding import in_one_line
from gpunode.base.messages import with_code
from gpunode.base.run_context import RUN_NAME, WAVE, Slot
from gpunode.base.shell_file import script_file
from gpunode.operations.script import script_command
from gpunode.system.transaction import NODE_LOCKED

# Set where the run is the agent's own, which holds the lock for it.
PULL = "GPUNODE_PULL"
# Set where the lock is a parent process's matter.
LOCKED = "GPUNODE_LOCKED"
_TAKE, _LOCK = script_file("node_lock"), Places().lock

# What holds the lock of a host: the streams of a command on its connection, or a process here.
_held: Slot[Any] = Slot(lambda: None)


def is_pull() -> bool:
    """Say whether this run is the agent's own: of this node alone, which it runs on."""
    return bool(os.environ.get(PULL))


def runner() -> str:
    """Return who runs this, as another run on the same node is to name them: user and machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def refusal() -> str | None:
    """Take the lock of the current host, unless this run holds it; return why it cannot be had."""
    if is_pull() or os.environ.get(LOCKED):
        return None
    host = ctx_host.get()
    # What is not carried out yet changes nothing. Another connector's node, an image that is made, say, has one user.
    if not host.state.is_executing or not isinstance(host.connector, SSHConnector | LocalConnector):
        return None
    return None if _is_held(host, _held.of(host)) else _take(host)


def _is_held(host: Host, held: Any) -> bool:
    if held is None or isinstance(held, subprocess.Popen):
        return held is not None and held.poll() is None
    channel, client = held[1].channel, host.connector.client  # type: ignore[attr-defined]
    # A boot within the run ends one connection and begins another.
    return not channel.closed and client is not None and channel.get_transport() is client.get_transport()


def _take(host: Host) -> str | None:
    output, errors = _ask(host)
    process = since = holder = ""
    for line in output:
        word, _, rest = line.strip().partition(" ")
        if word == "taken":
            if holder:
                # The other run may have changed what was read before; any command ends that it counts.
                host.run_shell_command(StringCommand("true"))
            return None
        if word == "foreign":
            process, _, user = rest.partition(" ")
            host.log(f"{_LOCK} is locked by process {process} of user {user}, not root: the file is replaced")
        if word in ("waits", "held"):
            process, since, holder = (*rest.split(" ", 2), "", "", "")[:3]
            holder = holder.strip() or "not known who"
            if word == "waits":
                host.log(f"waits for another run on this node, since {since}: {holder}")
    # Its process ends a moment after its output.
    _held.set(host, None)
    if holder:
        cause = f"another run is at work on this node since {since} (by its clock): {holder}; this run changed nothing"
        remedy = f"wait until it has ended; if its controller is gone for good, `kill {process}` on {host.name}"
    else:
        words = in_one_line("".join(errors)) or "no reason is given"
        cause = f"the lock {_LOCK} of the node cannot be taken: {words}"
        remedy = "correct that on the node, and run again; flock is in the package util-linux"
    return with_code(f"{OWN_CAUSE} {cause}\n{OWN_REMEDY} {remedy}", NODE_LOCKED)


def _ask(host: Host) -> tuple[Iterable[str], Iterable[str]]:
    """Start what takes the lock and holds it; return the lines of its output, and of its errors."""
    command = script_command(
        _TAKE,
        lock=str(_LOCK),
        by=_name(),
        patience=f"{PATIENCE:.0f}",
        waits="yes" if os.environ.get(WAVE) else "",
    )
    given: Any = host.current_op_global_arguments or {}
    arguments: Any = {key: value for key, value in given.items() if key in CONNECTOR_ARGUMENT_KEYS}
    extract_control_arguments(arguments)
    text = make_unix_command_for_host(host.state, host, command, **arguments).get_raw_value()
    if isinstance(host.connector, SSHConnector):
        assert host.connector.client is not None
        streams = host.connector.client.exec_command(text)
        _held.set(host, streams)
        return streams[1], streams[2]
    pipe = subprocess.PIPE
    process = subprocess.Popen(["sh", "-c", text], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    _held.set(host, process)
    assert process.stdout is not None and process.stderr is not None
    return process.stdout, process.stderr


def _name() -> str:
    """Return what another run is to name this one by."""
    # Other words may be passwords.
    words = (Path(sys.argv[0]).name, *(word for word in sys.argv[1:] if Path(word).is_file()))
    run = os.environ.get(RUN_NAME) or f"`{shlex.join(words)}`"
    return f"{in_one_line(run)} by {runner()}, process {os.getpid()} there"
