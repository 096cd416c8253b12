"""Hooks into pyinfra 3.10, where it offers no place of its own; without them what goes well goes the same, only slower.

- `connect`: no delay, no silence that lasts, and each failure to connect is its host's, see
  gpunode.fleet.access.connecting.
- `proxy`: a ProxyCommand's connection is a socket, see gpunode/fleet/access/proxy.py.
- `access`: nodes whose login shell is a csh or fish, whose /tmp lets nothing be run, or whose sudo asks where nobody
  answers, see gpunode/fleet/access.
- `settings`: settings are judged before the first connection; config.py cannot add an inventory callback.
- `parallel`: as many hosts at once as there are, see gpunode.fleet.hooks.
- `readings`: one reading of a node serves many operations, see gpunode.fleet.shared_readings.
- `order`: an operation's place in the deploy without `inspect.stack()` (gpunode.fleet.hooks), and its type
  hints read once.
- `connectors`: which of them are installed is looked up once.
- `verdict`: a run ends with how its nodes are, and with why an operation failed, see gpunode.fleet.run_end.
- `output`: what a node says is cleaned before it reaches a terminal, see gpunode.base.terminal.

GPUNODE_HOOKS=off leaves all out but the settings, the verdict and the output, to tell whether a fault is theirs.
"""

from __future__ import annotations

import logging
import os
import resource
import sys
import time
from collections.abc import Callable
from functools import cache, partial, wraps
from types import FrameType
from typing import Any

import pyinfra
from paramiko import Channel, Transport
from paramiko.auth_handler import AuthHandler
from paramiko.packet import Packetizer
from pyinfra import logger
from pyinfra.api import arguments, connectors
from pyinfra.api import state as pyinfra_state
from pyinfra.api.command import FunctionCommand, PyinfraCommand, StringCommand
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.api.util import PYINFRA_INSTALL_DIR
from pyinfra.connectors import local, ssh, sshuserclient
from pyinfra.connectors import util as connectors_util
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.sshuserclient.config import FakeInvoke, SSHConfig

from gpunode.base import command_output
from gpunode.base.run_context import Slot
from gpunode.base.terminal import logged
from gpunode.fleet import run_end, shared_readings
from gpunode.fleet.access import connecting, connection, proxy

# Open files per host while operations run, and those of Python itself: pyinfra's own reckoning.
_FILES_PER_HOST, _FILES = 3, 10


def parallel(
    init: Callable[..., Any], self: State, inventory: Inventory, config: Any, *args: Any, **kwargs: Any
) -> Any:
    """Begin a run with all hosts at once, where nobody chose a number."""
    if config is not None and not config.PARALLEL:
        config.PARALLEL = min(len(inventory), hosts_within_open_files(len(inventory)))
    return init(self, inventory, config, *args, **kwargs)


def hosts_within_open_files(hosts: int) -> int:
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


_MARK = "_gpunode_hook"
# paramiko tells of each connection that fails by a traceback, where nobody listens; pyinfra tells the reason.
NOBODY = logging.NullHandler()
_ERROR_LOG = run_end.ErrorLog(logging.ERROR)

Method = Callable[..., Any]

_begun: Slot[float | None] = Slot(lambda: None)


class SettingsRefused(PyinfraError):
    """Carry every mistake of every host in one message; pyinfra prints it without a traceback and exits 1."""


def install() -> None:
    """Install the hooks; a second call changes nothing."""
    logging.getLogger("paramiko").addHandler(NOBODY)
    _wrap(State, "init", _validated)
    logger.addFilter(_record_cleaned)
    # What is printed as it comes, with -v: it is no log's.
    _wrap(connectors_util, "echo", _cleaned)
    logger.addHandler(_ERROR_LOG)
    for kind in PyinfraCommand.__subclasses__():
        _wrap(kind, "execute", run_end.executed, "_executed")
    # Its command line's own name for it: whatever becomes of a run, it ends there.
    if (command_line := sys.modules.get("pyinfra_cli.cli")) is not None:
        _wrap(command_line, "disconnect_all", _ended)
        _wrap(command_line, "make_inventory", _explained)
    if os.environ.get("GPUNODE_HOOKS") == "off":
        return
    _wrap(State, "init", parallel, "_parallel")
    _wrap(SSHConnector, "connect", connecting.connect)
    _wrap(SSHConnector, "_connect", connecting.connect_in_time)
    _wrap(SSHClient, "connect", proxy.with_proxy)
    _wrap(Packetizer, "_read_timeout", connecting.read_banner)
    _wrap(Packetizer, "read_all", connecting.read_bytes)
    _wrap(Transport, "_parse_ext_info", connecting.read_counted)
    _wrap(AuthHandler, "_parse_userauth_info_request", partial(connecting.read_counted, texts=3))
    # paramiko escapes a debug packet byte by byte for its log, in time that grows with the square of its size.
    _replace(Transport, "_parse_debug", lambda _: lambda *_: None)
    _wrap(Transport, "get_exception", connecting.protocol_error)
    # By default paramiko prints a server's prompts as they are, and all hosts wait for what a person types.
    _wrap(Transport, "auth_interactive_dumb", lambda ask, self, name: ask(self, name, lambda *_: []))
    for name in ("_feed", "_feed_extended"):
        _wrap(Channel, name, connecting.feed)
    for module in (ssh, connectors_util):
        _replace(module, "read_output_buffers", lambda _: command_output.read_output)
    _wrap(StringCommand, "execute", connection.as_change, "_output")
    # The ssh_config's words as they stand: the hook replaces their tokens, by the port and the user that count.
    _replace(sshuserclient.client, "ProxyCommand", lambda _: lambda command: command)
    _wrap(SSHClient, "parse_config", proxy.through_proxy)
    SSHConfig.TOKENS_BY_CONFIG_KEY = {**SSHConfig.TOKENS_BY_CONFIG_KEY, "proxycommand": []}
    _replace(FakeInvoke, "run", lambda _: proxy.match_exec)
    _wrap(SSHClient, "exec_command", connection.exec_command)
    _wrap(SSHConnector, "run_shell_command", connection.any_login_shell)
    for connector in (SSHConnector, LocalConnector):
        _wrap(connector, "run_shell_command", connection.explained, "_explained")
    for name in ("put_file", "get_file"):
        _wrap(SSHConnector, name, connection.carried)
    for module in (ssh, local):
        _wrap(module, "execute_command_with_sudo_retry", connection.asks_on_a_terminal)
    connectors_util.ASKPASS_COMMAND = connection.Askpass()
    _wrap(Host, "run_shell_command", shared_readings.shared)
    for owner, name in ((Host, "put_file"), (Host, "rsync"), (Host, "disconnect"), (FunctionCommand, "execute")):
        _wrap(owner, name, shared_readings.changing)
    _replace(arguments, "all_global_arguments", lambda function: cache(function))
    _replace(connectors, "entry_points", lambda function: cache(function))
    # The name pyinfra.api.operation is the decorator, not the module. A partial adds no frame to the stack.
    _replace(sys.modules["pyinfra.api.operation"], "get_operation_order_from_stack", lambda _: partial(operation_order))


def are_installed() -> bool:
    """Say whether readings are shared: without the hook, an announcement would really run what it announces."""
    return hasattr(Host.run_shell_command, _MARK)


def seconds_of_changes(state: State) -> float:
    """Return for how long a run has been at work, as far as it changed anything yet; 0 where it did not."""
    if are_installed() and not shared_readings.changes.count:
        return 0.0
    begun = _begun.of(state)
    return 0.0 if begun is None else time.monotonic() - begun


def _replace(owner: Any, name: str, make: Callable[[Method], Method], mark: str = "") -> None:
    method = getattr(owner, name)
    if not hasattr(method, _MARK + mark):
        hooked = wraps(method)(make(method))
        setattr(hooked, _MARK + mark, True)
        setattr(owner, name, hooked)


def _wrap(owner: Any, name: str, hook: Method, mark: str = "") -> None:
    """Have a hook called in a method's place: with the method, and with what that is given."""
    _replace(owner, name, lambda method: lambda *args, **kwargs: hook(method, *args, **kwargs), mark)


def _record_cleaned(record: logging.LogRecord) -> bool:
    if isinstance(record.msg, str):
        record.msg, record.args = logged(record.getMessage()), ()
    return True


def _cleaned(echo: Method, message: Any = None, *args: Any, **kwargs: Any) -> None:
    echo(logged(message) if isinstance(message, str) else message, *args, **kwargs)


def _validated(init: Method, self: State, inventory: Inventory, *args: Any, **kwargs: Any) -> Any:
    from gpunode.fleet.inventory import validate_state
    from gpunode.settings import SettingsError
    from gpunode.settings.layers import OverrideError

    result = init(self, inventory, *args, **kwargs)
    _begun.set(self, time.monotonic())
    try:
        validate_state(inventory)
    except (SettingsError, OverrideError) as error:
        raise SettingsRefused(str(error)) from None
    run_end.watch(self)
    return result


def _explained(make_inventory: Method, name: str, *args: Any, **kwargs: Any) -> Inventory:
    """Read an inventory; an exception in it ends pyinfra with file and line instead of a traceback."""
    from pyinfra_cli.exceptions import CliError

    from gpunode.base.messages import with_code
    from gpunode.fleet.inventory_files import reading_error, unused_group_data

    try:
        found: Inventory = make_inventory(name, *args, **kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        read = reading_error(name, error)
        raise CliError(with_code(str(read), read.code)) from None
    for caution in unused_group_data(name, found.groups):
        logger.warning(f"caution: {caution}")
    return found


def _ended(disconnect_all: Method, state: State) -> Any:
    result = disconnect_all(state)
    run_end.tell(state)
    return result
