"""Hooks into pyinfra 3.10, where it offers no place of its own; without them what goes well goes the same, only slower.

- `connect`: no Nagle delay on SSH connections (paramiko never sets TCP_NODELAY, which costs about 40 ms per command),
  and a node that fell silent is noticed: a run would wait for its answer for ever. A key exchange that ran out of time
  is tried once more: a hundred at once take longer than pyinfra waits for one. A key file that cannot be used is
  its host's failure to connect: pyinfra would print a traceback for each host, keep the reason, and end the run.
- `access`: nodes whose login shell is a csh or fish, whose /tmp lets nothing be run, or whose sudo asks where nobody
  answers, see gpunode/fleet/access.
- `settings`: settings are judged before the first connection; config.py cannot add an inventory callback.
- `parallel`: as many hosts at once as there are, within the limit of open files.
- `snapshot`: one reading of a node serves many operations, see gpunode.fleet.snapshot.
- `order`: an operation's place in the deploy without `inspect.stack()`, and its type hints read once.
- `connectors`: which of them are installed is looked up once.
- `verdict`: a run ends with how its nodes are, see gpunode.fleet.run_end.
- `output`: what a node says is cleaned before it reaches a terminal, see gpunode.base.terminal.

GPUNODE_HOOKS=off leaves all out but the settings, the verdict and the output, to tell whether a fault is theirs.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
import time
from collections.abc import Callable
from functools import cache, partial, wraps
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import pyinfra
from pyinfra import logger
from pyinfra.api import arguments, connectors
from pyinfra.api import state as pyinfra_state
from pyinfra.api.command import FunctionCommand
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.api.util import PYINFRA_INSTALL_DIR
from pyinfra.connectors import local, ssh
from pyinfra.connectors import util as connectors_util
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.util import CommandOutput, OutputLine

from gpunode.base.probe import Probe
from gpunode.base.terminal import logged
from gpunode.fleet import run_end
from gpunode.fleet.access import connection
from gpunode.fleet.snapshot import Announced, Changes, Snapshot

_MARK = "_gpunode_hook"
# Open files per host while operations run, and those of Python itself: pyinfra's own reckoning.
_FILES_PER_HOST, _FILES = 3, 10
# The kernel of a node answers for it, however long its command takes: after a minute of silence the connection is dead.
_TCP_OPTIONS = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}

# paramiko tells of each connection that fails by a traceback, where nobody listens; pyinfra tells the reason.
_NOBODY = logging.NullHandler()

# What paramiko says where a key exchange did not end within pyinfra's CONNECT_TIMEOUT, or was broken off.
_NOT_AGREED = "No existing session"

Method = Callable[..., Any]

_changes = Changes()
_snapshots: WeakKeyDictionary[Host, Snapshot[CommandOutput]] = WeakKeyDictionary()
_begun: WeakKeyDictionary[State, float] = WeakKeyDictionary()


class SettingsRefused(PyinfraError):
    """Carry every mistake of every host in one message; pyinfra prints it without a traceback and exits 1."""


class Unconnectable(ConnectError):
    """Say why no attempt connects to a host, whatever becomes of it: what is wrong is on this side, a key file, say."""


def install() -> None:
    """Install the hooks; a second call changes nothing."""
    logging.getLogger("paramiko").addHandler(_NOBODY)
    _wrap(State, "init", _validated)
    logger.addFilter(_record_cleaned)
    # What is printed as it comes, with -v: it is no log's.
    _wrap(connectors_util, "echo", _cleaned)
    _wrap(State, "init", _watched, "_watched")
    # Its command line's own name for it: whatever becomes of a run, it ends there.
    if (command_line := sys.modules.get("pyinfra_cli.cli")) is not None:
        _wrap(command_line, "disconnect_all", _ended)
    if os.environ.get("GPUNODE_HOOKS") == "off":
        return
    _wrap(State, "init", _parallel, "_parallel")
    _wrap(SSHConnector, "connect", _without_delay)
    _wrap(SSHConnector, "connect", _patient, "_patient")
    _wrap(SSHConnector, "connect", _contained, "_contained")
    _wrap(SSHClient, "exec_command", connection.exec_command)
    _wrap(SSHConnector, "run_shell_command", connection.any_login_shell)
    for connector in (SSHConnector, LocalConnector):
        _wrap(connector, "run_shell_command", connection.explained, "_explained")
    for module in (ssh, local):
        _wrap(module, "execute_command_with_sudo_retry", connection.asks_on_a_terminal)
    connectors_util.ASKPASS_COMMAND = connection.Askpass()
    _wrap(Host, "run_shell_command", _snapshot)
    for owner, name in ((Host, "put_file"), (Host, "rsync"), (Host, "disconnect"), (FunctionCommand, "execute")):
        _wrap(owner, name, _changing)
    _replace(arguments, "all_global_arguments", lambda function: cache(function))
    _replace(connectors, "entry_points", lambda function: cache(function))
    # The name pyinfra.api.operation is the decorator, not the module. A partial adds no frame to the stack.
    _replace(sys.modules["pyinfra.api.operation"], "get_operation_order_from_stack", lambda _: partial(operation_order))


def are_installed() -> bool:
    """Say whether readings are shared: without the hook, an announcement would really run what it announces."""
    return hasattr(Host.run_shell_command, _MARK)


def snapshot(host: Host) -> Snapshot[CommandOutput]:
    """Return the host's snapshot."""
    return _snapshots.setdefault(host, Snapshot(_changes))


def read_anew(host: Host) -> None:
    """Have the host's next question answered by the host, whatever is known of it."""
    snapshot(host).forget()


def seconds_of_changes(state: State) -> float:
    """Return for how long a run has been at work, as far as it changed anything yet; 0 where it did not."""
    if are_installed() and not _changes.count:
        return 0.0
    return time.monotonic() - _begun[state] if state in _begun else 0.0


def _replace(owner: Any, name: str, make: Callable[[Method], Method], mark: str = "") -> None:
    method = getattr(owner, name)
    if not hasattr(method, _MARK + mark):
        hooked = wraps(method)(make(method))
        setattr(hooked, _MARK + mark, True)
        setattr(owner, name, hooked)


def _wrap(owner: Any, name: str, hook: Method, mark: str = "") -> None:
    """Have a hook called in a method's place: with the method, and with what that is given."""
    _replace(owner, name, lambda method: lambda *args, **kwargs: hook(method, *args, **kwargs), mark)


def operation_order(state: State) -> list[int]:
    """Return what pyinfra's get_operation_order_from_stack returns: line numbers from the deploy file inwards.

    pyinfra 3.10 walks the stack with `inspect.stack()`, which looks for the source of every frame (cpython issue
    92041): it is the greater part of the controller's work per operation and host. The numbers are in the frames.
    """
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    frames.reverse()
    if file := state.current_deploy_filename:
        # Where the file is nowhere on the stack, pyinfra's own loop ends at its own frame, which it leaves out.
        frames = frames[next((at for at, each in enumerate(frames) if each.f_code.co_filename == file), len(frames)) :]
    numbers = [state.current_op_file_number] if pyinfra.is_cli else []
    install = str(PYINFRA_INSTALL_DIR)
    return numbers + [each.f_lineno for each in frames if not each.f_code.co_filename.startswith(install)]


def _record_cleaned(record: logging.LogRecord) -> bool:
    if isinstance(record.msg, str):
        record.msg, record.args = logged(record.getMessage()), ()
    return True


def _cleaned(echo: Method, message: Any = None, *args: Any, **kwargs: Any) -> None:
    echo(logged(message) if isinstance(message, str) else message, *args, **kwargs)


def _without_delay(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    result = connect(self, *args, **kwargs)
    transport = self.client.get_transport() if self.client else None
    # A ProxyJump's channel is no socket; it has no such option and needs none.
    if transport is not None and isinstance(transport.sock, socket.socket):
        transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _TCP_OPTIONS.items():
            # Some are Linux's alone.
            if hasattr(socket, name):
                transport.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return result


def _patient(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    try:
        return connect(self, *args, **kwargs)
    except ConnectError as error:
        if _NOT_AGREED not in str(error):
            raise
        # Of many hosts at once, the last wait for processor time; by now most of the others are through.
        if self.client is not None:
            self.client.close()
        return connect(self, *args, **kwargs)


def _contained(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    try:
        return connect(self, *args, **kwargs)
    except ConnectError as error:
        # A socket's error names no file; that of a key that may not be read does.
        cause = error.__context__
        if isinstance(cause, OSError) and cause.filename is not None:
            raise Unconnectable(str(error)) from error
        raise
    except PyinfraError as error:
        raise Unconnectable(str(error)) from error
    except ValueError as error:
        # Of a key file that is no text, a certificate that is none, or a port that is no number.
        used = f"ssh_key {self.data['ssh_key']}, ssh_port {self.data['ssh_port']}"
        raise Unconnectable(f"Unusable connection data: {error} ({used})") from error


def _validated(init: Method, self: State, inventory: Inventory, *args: Any, **kwargs: Any) -> Any:
    from gpunode.fleet.inventory import validate_state
    from gpunode.settings import SettingsError
    from gpunode.settings.overrides import OverrideError

    result = init(self, inventory, *args, **kwargs)
    _begun[self] = time.monotonic()
    try:
        validate_state(inventory)
    except (SettingsError, OverrideError) as error:
        raise SettingsRefused(str(error)) from None
    return result


def _watched(init: Method, self: State, *args: Any, **kwargs: Any) -> Any:
    result = init(self, *args, **kwargs)
    run_end.watch(self)
    return result


def _ended(disconnect_all: Method, state: State) -> Any:
    result = disconnect_all(state)
    run_end.tell(state)
    return result


def _parallel(init: Method, self: State, inventory: Inventory, config: Any, *args: Any, **kwargs: Any) -> Any:
    if config is not None and not config.PARALLEL:
        config.PARALLEL = min(len(inventory), _hosts_within_open_files(len(inventory)))
    return init(self, inventory, config, *args, **kwargs)


def _hosts_within_open_files(hosts: int) -> int:
    """Return how many hosts fit below the limit of open files, which is raised first as far as it may be."""
    desired = hosts * _FILES_PER_HOST + _FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < desired:
        soft = desired if hard == resource.RLIM_INFINITY else min(desired, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY:
        return hosts
    # pyinfra read the limit when it was imported, and would warn by that.
    pyinfra_state.MAX_PARALLEL = max(1, (soft - _FILES) // _FILES_PER_HOST)
    return pyinfra_state.MAX_PARALLEL


def _changing(method: Method, *args: Any, **kwargs: Any) -> Any:
    with _changes.change():
        return method(*args, **kwargs)


def _snapshot(run_shell_command: Method, self: Host, command: Any, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(command, Probe):
        return _changing(run_shell_command, self, command, *args, **kwargs)
    known = snapshot(self)
    if known.announcing:
        known.announce(command)
        raise Announced
    return known.read(
        command,
        stage="execute" if self.state is not None and self.state.is_executing else "prepare",
        across=self.state is not None and is_unattended(self.state),
        # How it is printed makes no difference to what is read.
        arguments=repr(sorted((key, value) for key, value in kwargs.items() if not key.startswith("print_"))),
        run=lambda text: run_shell_command(self, text, *args, **kwargs),
        lines_of=lambda output: output.stdout_lines,
        answer_of=_output,
    )


def is_unattended(state: State) -> bool:
    """Say whether a run shows no plan that somebody may think over before it is carried out (`pyinfra -y`)."""
    return not state.should_check_for_changes()


def _output(lines: list[str]) -> CommandOutput:
    return CommandOutput([OutputLine("stdout", line) for line in lines])
