"""Two hooks into pyinfra: no Nagle delay on SSH connections, and settings judged before the first connection.

Both patch pyinfra 3.10 where it offers no place of its own: inventory callbacks cannot be added from config.py, and
paramiko never sets TCP_NODELAY, which costs about 40 ms per command.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import State
from pyinfra.connectors.ssh import SSHConnector

_MARK = "_gpunode_hook"


class SettingsRefused(PyinfraError):
    """Carry every mistake of every host in one message; pyinfra prints it without a traceback and exits 1."""


def install() -> None:
    """Install both hooks; a second call changes nothing."""
    _wrap(SSHConnector, "connect", _without_delay)
    _wrap(State, "init", _validated)


def _wrap(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    method = getattr(owner, name)
    if not hasattr(method, _MARK):
        hooked = wraps(method)(make(method))
        setattr(hooked, _MARK, True)
        setattr(owner, name, hooked)


def _without_delay(connect: Callable[..., Any]) -> Callable[..., Any]:
    def connect_without_delay(self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
        result = connect(self, *args, **kwargs)
        transport = self.client.get_transport() if self.client else None
        # A ProxyJump's channel is no socket; it has no such option and needs none.
        if transport is not None and isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return result

    return connect_without_delay


def _validated(init: Callable[..., Any]) -> Callable[..., Any]:
    def init_validated(self: State, inventory: Inventory, *args: Any, **kwargs: Any) -> Any:
        from gpunode.inventory import validate_state
        from gpunode.settings import SettingsError

        result = init(self, inventory, *args, **kwargs)
        try:
            validate_state(inventory)
        except SettingsError as error:
            raise SettingsRefused(str(error)) from None
        return result

    return init_validated
