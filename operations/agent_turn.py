"""A node that carries out bundles by itself, and a push at the same time: one waits for the other.

Both hold one lock on the node. A push holds it by a process there that lives as long as the connection, so that nobody
has to take away what a controller left that died.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector

from gpunode.agent.files import PLACES
from gpunode.agent.pull import PATIENCE
from gpunode.base.run_context import Slot
from gpunode.facts.interrupted import Interrupted
from gpunode.operations.failure import failed, node_operation, require
from gpunode.system.transaction import Interrupted as Reading

# Set where the run is the agent's own, which holds the lock for it.
PULL = "GPUNODE_PULL"
_TAKEN = b"taken"
# For any login shell: none of these words is special to one.
_HOLD = f"exec flock -x -w {PATIENCE:.0f} {PLACES.lock} sh -c 'echo taken; exec cat'"
# Seconds after which it is told that somebody is waited for, and in which a node that is free answers.
_SOON = 3.0
# Seconds between two signs of life on a connection on which a lock is waited for.
_KEEPALIVE = 30

# What holds the lock of a host: a channel of its connection, or a process here.
_held: Slot[Any] = Slot(lambda: None)


def is_pull() -> bool:
    """Say whether this run is the agent's own: of this node alone, which it runs on."""
    return bool(os.environ.get(PULL))


def pulls() -> bool:
    """Say whether the node carries out bundles by itself, and this run is not that."""
    if is_pull():
        return False
    found = host.get_fact(Interrupted)
    return isinstance(found, Reading) and found.pulls


@node_operation
def taken() -> Iterator[Any]:
    """Wait until the node is at no bundle, and keep it from beginning one as long as this run is connected."""
    require(host.get_fact(Interrupted), "whether the node carries out bundles by itself")
    yield FunctionCommand(_take, [], {})


def _take(state: State, host: Host) -> bool:
    if _held.of(host) is not None:
        return True
    connector = host.connector
    if isinstance(connector, SSHConnector):
        assert connector.client is not None
        transport = connector.client.get_transport()
        assert transport is not None
        # Nothing is said while it waits, and a node that a pull has boot may go down without a word.
        transport.set_keepalive(_KEEPALIVE)
        channel = transport.open_session()
        channel.settimeout(_SOON)
        channel.exec_command(_HOLD)
        _held.set(host, channel)
        return _answered(state, host, channel)
    if isinstance(connector, LocalConnector):
        process = subprocess.Popen(["sh", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        _held.set(host, process)
        assert process.stdout is not None
        return process.stdout.readline().strip() == _TAKEN or _refused(state, host)
    # Another way to the node: a container that is made into an image, say, has no timer at work.
    return True


def retaken(state: State, host: Host) -> bool:
    """Take the lock anew on a new connection, where this run held it on one that a boot has ended."""
    if _held.of(host) is None:
        return True
    _held.set(host, None)
    return _take(state, host)


def _answered(state: State, host: Host, channel: Any) -> bool:
    """Wait for the lock, and say so where that takes its time."""
    end, told, said = time.monotonic() + PATIENCE + 60, False, b""
    while time.monotonic() < end:
        try:
            got = channel.recv(64)
        except TimeoutError:
            if not told:
                host.log("waits: the node carries out a bundle that it pulled (systemctl status gpunode-agent)")
                told = True
            continue
        said += got
        if _TAKEN in said:
            return True
        if not got:
            break
    return _refused(state, host)


def _refused(state: State, host: Host) -> bool:
    return failed(
        host,
        f"the lock {PLACES.lock} was not to be had: flock (util-linux) is not there, the node was at a bundle all the "
        "time, or its pull has booted it. Remedy: look at `systemctl status gpunode-agent` on it, and run this again",
    )
