"""Hooks into the way that pyinfra 3.10 connects to a host by ssh.

- `without_delay`: no Nagle delay (paramiko never sets TCP_NODELAY, which costs about 40 ms per command), and a node
  that fell silent is noticed: a run would wait for its answer for ever. A connection in which nothing happens sleeps
  for seconds: paramiko alone wakes ten times a second to look whether it was closed, which for two thousand nodes is
  all that a processor can do.
- `proxied`: what a ProxyCommand said last is the reason of a failure to connect.
- `patient`: a key exchange that ran out of time is tried once more: a hundred at once take longer than pyinfra waits
  for one.
- `contained`: a key file that cannot be used is its host's failure to connect: pyinfra would print a traceback for each
  host, keep the reason, and end the run.
- `remedied`: a host key that is unknown or another one is told with the commands that mend it.
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

from gpunode.fleet.access import errors
from gpunode.fleet.access.proxy import ProxySocket

# `[HOST]:PORT` where the port is not 22, in pyinfra's words as in the file.
_UNKNOWN = re.compile(r"No host key for (\S+) found in known_hosts")
_CHANGED = re.compile(r"Host key for (\S+) does not match")
_WITH_PORT = re.compile(r"\[(?P<host>.+)\]:(?P<port>\d+)")


def host_key_remedy(said: str, port: int, file: str) -> str | None:
    """Return what mends a connection that failed with these words; None where they are of no host key.

    port: the one that was connected to; file: the known hosts file that was read
    """
    if found := _UNKNOWN.search(said):
        host, at = _parted(found[1], port)
        return f"{_compare(host, at)}, then `{_keyscan(host, at)} >> {quote(file)}`"
    if found := _CHANGED.search(said):
        host, at = _parted(found[1], port)
        entry = host if at == 22 else f"[{host}]:{at}"
        return (
            f"where you know why (the machine was installed anew): `ssh-keygen -f {quote(file)} -R {quote(entry)}`, "
            f"{_compare(host, at)}, then `{_keyscan(host, at)} >> {quote(file)}`; else somebody may stand in between"
        )
    return None


def _parted(name: str, port: int) -> tuple[str, int]:
    found = _WITH_PORT.fullmatch(name)
    return (found["host"], int(found["port"])) if found else (name, port)


def _compare(host: str, port: int) -> str:
    return f"compare `{_keyscan(host, port)} | ssh-keygen -lf -` with what the machine's console says of its keys"


def _keyscan(host: str, port: int) -> str:
    return f"ssh-keyscan {'' if port == 22 else f'-p {port} '}{quote(host)}"


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


def without_delay(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    """Connect; then have small packets sent at once, silence noticed, and what is idle sleep."""
    result = connect(self, *args, **kwargs)
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


def proxied(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    """Connect; where a ProxyCommand brings no SSH server's answer, say what became of the command."""
    try:
        return connect(self, *args, **kwargs)
    except ConnectError as error:
        sock = getattr(self.client, "_ssh_config", {}).get("sock")
        if isinstance(sock, ProxySocket) and any(words in str(error) for words in _UNANSWERED):
            raise ConnectError(
                f"{sock.state()}{errors.REMEDY}correct the ssh_config until `ssh` connects by it"
            ) from error
        raise


def patient(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    """Connect; where both sides did not agree on keys in time, try once more."""
    try:
        return connect(self, *args, **kwargs)
    except ConnectError as error:
        if _NOT_AGREED not in str(error):
            raise
        # Of many hosts at once, the last wait for processor time; by now most of the others are through.
        if self.client is not None:
            self.client.close()
        return connect(self, *args, **kwargs)


def contained(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    """Connect; raise Unconnectable where no attempt can succeed, ConnectError for whatever else stops it."""
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


def remedied(connect: Method, self: SSHConnector, *args: Any, **kwargs: Any) -> Any:
    """Connect; an error of host keys has the remedy behind it."""
    try:
        return connect(self, *args, **kwargs)
    except ConnectError as error:
        file, config = getattr(self.client, "_host_keys_filename", None), getattr(self.client, "_ssh_config", {})
        remedy = None if file is None else host_key_remedy(str(error), int(config.get("port", 22)), file)
        if file is not None and remedy is not None and config.get("sock"):
            # ssh-keyscan knows neither the way through another host or program, nor a HostKeyAlias.
            by = self.data["ssh_config_file"]
            words = ["ssh", *(("-F", by) if by else ()), "-o", f"UserKnownHostsFile={file}"]
            command = join([*words, "-o", "StrictHostKeyChecking=ask", self.data["ssh_hostname"] or self.host.name])
            old = _CHANGED.search(str(error))
            first = f"if the machine is new, run `ssh-keygen -f {quote(file)} -R {quote(old[1])}`; " if old else ""
            remedy = f"{first}compare the key that `{command}` shows with that on the machine's console, and accept it"
        if remedy is None:
            raise
        raise type(error)(f"{error}{errors.REMEDY}{remedy}") from error


def is_broken(connector: Any) -> bool:
    """Say whether a connection that was made has ended by itself."""
    transports = _transports(connector)
    return bool(transports) and not transports[0].is_active()


def leave(host: Host) -> None:
    """Disconnect from a host, and close what was opened on the way to it, whether it was reached or not.

    pyinfra forgets its connections, and they would be open until Python ends: each takes an open file, and wakes.
    """
    # What came, came; and a host that hangs is not waited for.
    with suppress(Exception), Timeout(SECONDS_TO_LEAVE, False):
        if host.connected:
            host.disconnect()
    with suppress(Exception):
        for transport in _transports(host.connector):
            transport.close()


def _transports(connector: Any) -> tuple[Transport, ...]:
    """Return the connection to a host, and those to the hosts that it jumps over, the last one first."""
    client = getattr(connector, "client", None)
    transport = client.get_transport() if isinstance(client, ParamikoClient) else None
    found = []
    while transport is not None:
        found.append(transport)
        transport = transport.sock.get_transport() if isinstance(transport.sock, Channel) else None
    return tuple(found)
