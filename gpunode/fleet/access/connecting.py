"""How gpunode connects to a host by ssh, in pyinfra 3.10's place, and leaves it.

- No Nagle delay (paramiko never sets TCP_NODELAY, which costs about 40 ms per command), and a node that fell silent is
  noticed: a run would wait for its answer for ever. A connection in which nothing happens sleeps for seconds: paramiko
  alone wakes ten times a second to look whether it was closed, which for two thousand nodes is all that a processor can
  do.
- A key exchange that ran out of time is tried once more: a hundred at once take longer than pyinfra waits for one.
- What a ProxyCommand printed last is the reason of a failure to connect.
- A key file that cannot be used is its host's failure to connect: pyinfra would print a traceback for each host, keep
  the reason, and end the run.
- A host key that is unknown or differs comes with the commands that correct it.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from shlex import join, quote
from typing import Any

from gevent import Timeout  # type: ignore[import-untyped]
from paramiko import Channel, Transport
from paramiko import SSHClient as ParamikoClient
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.connectors.ssh import SSHConnector

from gpunode.base.messages import REMEDY
from gpunode.fleet.access.proxy import ProxySocket

# pyinfra's words. `[HOST]:PORT` where the port is not 22, as in the file.
_HOST_KEY = re.compile(
    r"(?P<unknown>No )?[Hh]ost key for (?:\[(?P<host>.+)\]:(?P<port>\d+)|(?P<name>\S+)) (?:found in|does not match)"
)


def host_key_remedy(said: str, port: int, file: str, command: str | None = None) -> str | None:
    """Return what mends a connection that failed with these words; None where they are of no host key.

    port: the one that was connected to; file: the known hosts file that was read; command: the ssh command that shows
    the key, where ssh-keyscan does not reach the host
    """
    found = _HOST_KEY.search(said)
    if found is None:
        return None
    host, at = found["host"] or found["name"], int(found["port"] or port)
    scan = f"ssh-keyscan {'' if at == 22 else f'-p {at} '}{quote(host)}"
    remedy = f"compare `{scan} | ssh-keygen -lf -` with the machine's console, then `{scan} >> {quote(file)}`"
    if command is not None:
        remedy = f"compare the key that `{command}` shows with that on the machine's console, and accept it"
    if found["unknown"]:
        return remedy
    entry = quote(host if at == 22 else f"[{host}]:{at}")
    return (
        f"if you know why (the machine was installed again, say), run `ssh-keygen -f {quote(file)} -R {entry}`, "
        f"{remedy}; otherwise another machine may answer in its place"
    )


# The kernel of a node answers for it, however long its command takes: after a minute of silence the connection is dead.
_TCP_OPTIONS = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
# How often paramiko looks whether we have closed a connection, in seconds; what comes is read when it comes.
_SECONDS_BETWEEN_LOOKS = 2.0
# For leaving a host, from which something may be to be taken away.
SECONDS_TO_LEAVE = 5.0
# What paramiko says where a key exchange did not end within pyinfra's CONNECT_TIMEOUT, or was broken off.
_NOT_AGREED = "No existing session"
# What pyinfra says where the other side closed the connection, or sent nothing, before the keys were agreed on.
_UNANSWERED = (_NOT_AGREED, "SSH protocol banner", "EOF error")

Method = Callable[..., Any]


class Unconnectable(ConnectError):
    """Say why no attempt connects to a host, whatever becomes of it: what is wrong is on this side, a key file, say."""


def connect(method: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    """Connect; raise Unconnectable where no attempt can succeed, ConnectError for whatever else stops it."""
    try:
        try:
            result = method(self, *args, **kwargs)
        except ConnectError as error:
            if _NOT_AGREED not in str(error):
                raise
            # Of many hosts at once, the last wait for processor time; by now most of the others are through.
            if self.client is not None:
                self.client.close()
            result = method(self, *args, **kwargs)
    except (PyinfraError, ValueError) as error:
        raise _failure(self, error) from error
    for transport in _transports(self):
        transport.sock.settimeout(_SECONDS_BETWEEN_LOOKS)
        # The channel through a jump host is no socket, and has no such options; the way to the jump host has.
        if isinstance(transport.sock, ProxySocket):
            # The command notices that its own connection is dead once it has something to send.
            transport.set_keepalive(_TCP_OPTIONS["TCP_KEEPIDLE"])
        elif isinstance(transport.sock, socket.socket):
            transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _TCP_OPTIONS.items():
                # Some are Linux's alone.
                if hasattr(socket, name):
                    transport.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return result


def _failure(self: SSHConnector, error: Exception) -> ConnectError:
    """Return the error of a host that was not connected to, with its remedy where one is known."""
    if isinstance(error, ValueError):
        # Of a key file that is no text, a certificate that is none, or a port that is no number.
        used = f"ssh_key {self.data['ssh_key']}, ssh_port {self.data['ssh_port']}"
        return Unconnectable(f"Unusable connection data: {error} ({used})")
    # A server may say anything; what it calls a remedy is none.
    said, remedy = str(error).replace(REMEDY, "; remedy: "), None
    file, config = getattr(self.client, "_host_keys_filename", None), getattr(self.client, "_ssh_config", {})
    sock = config.get("sock")
    if isinstance(sock, ProxySocket) and any(words in said for words in _UNANSWERED):
        said, remedy = sock.state(), "correct the ssh_config until `ssh` connects by it"
    elif file is not None:
        # ssh-keyscan knows neither the way through another host or program, nor a HostKeyAlias.
        flags = {"-F": self.data["ssh_config_file"], "-l": self.data["ssh_user"], "-p": self.data["ssh_port"]}
        words = [word for flag, value in flags.items() if value for word in (flag, str(value))]
        words += ["-o", f'UserKnownHostsFile="{file}"', "-o", "StrictHostKeyChecking=ask"]
        command = join(["ssh", *words, self.data["ssh_hostname"] or self.host.name]) if sock else None
        remedy = host_key_remedy(said, int(config.get("port", 22)), file, command)
    # A socket's error names no file; that of a key that may not be read does.
    of_file = isinstance(cause := error.__context__, OSError) and cause.filename is not None
    kind = ConnectError if isinstance(error, ConnectError) and not of_file else Unconnectable
    return kind(f"{said}{REMEDY}{remedy}" if remedy else said)


def is_broken(connector: Any) -> bool:
    """Say whether a connection that was made has ended."""
    transports = _transports(connector)
    return bool(transports) and not transports[0].is_active()


def close(connector: Any) -> None:
    """Close a connection, and those to the hosts that it jumps over."""
    for transport in _transports(connector):
        transport.close()


def leave(host: Host) -> None:
    """Disconnect from a host, and close what was opened on the way to it, whether it was reached or not.

    pyinfra forgets its connections, and they would be open until Python ends: each takes an open file, and wakes.
    """
    # What came, came; and a host that hangs is not waited for.
    with suppress(Exception), Timeout(SECONDS_TO_LEAVE, False):
        if host.connected:
            host.disconnect()
    with suppress(Exception):
        close(host.connector)


def _transports(connector: Any) -> tuple[Transport, ...]:
    """Return the connection to a host, and those to the hosts that it jumps over, the last one first."""
    client = getattr(connector, "client", None)
    transport = client.get_transport() if isinstance(client, ParamikoClient) else None
    found = []
    while transport is not None:
        found.append(transport)
        transport = transport.sock.get_transport() if isinstance(transport.sock, Channel) else None
    return tuple(found)
