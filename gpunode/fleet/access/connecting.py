"""How gpunode connects to a host by ssh, in pyinfra 3.10's place, and leaves it.

- No Nagle delay (paramiko never sets TCP_NODELAY, which costs about 40 ms per command), and the connection to a node
  that falls silent is ended: a run would wait for its answer for ever. A connection in which nothing happens sleeps for
  seconds: paramiko alone wakes ten times a second to look whether it was closed, which for two thousand nodes is all
  that a processor can do.
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
from weakref import WeakSet, ref

from gevent import Timeout, sleep, spawn  # type: ignore[import-untyped]
from paramiko import Channel, Message, SSHException, Transport
from paramiko import SSHClient as ParamikoClient
from paramiko.common import cMSG_GLOBAL_REQUEST
from paramiko.packet import Packetizer
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.connectors.ssh import SSHConnector

from gpunode.base.command_output import TooLarge
from gpunode.base.messages import REMEDY
from gpunode.base.probe_output import too_large
from gpunode.fleet.access import errors
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


# After a minute in which the node's kernel does not answer, the connection is dead.
_TCP_OPTIONS = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}
# The kernel answers TCP also for a machine whose programs hang, so the SSH server has to answer as well.
_KEEPALIVES, _KEEPALIVE_SECONDS = 3, 30.0
# Connections that were ended because no keepalive was answered.
_silent: WeakSet[Transport] = WeakSet()
# How often paramiko looks whether we have closed a connection, in seconds; what comes is read when it comes.
_SECONDS_BETWEEN_LOOKS = 2.0
# For leaving a host, from which something may be to be taken away.
SECONDS_TO_LEAVE = 5.0
# What paramiko says where a key exchange did not end within pyinfra's CONNECT_TIMEOUT, or was broken off.
_NOT_AGREED = "No existing session"
# What pyinfra says where the other side closed the connection, or sent nothing, before the keys were agreed on.
_NO_CONNECTION = "no connection within"
_UNANSWERED = (_NOT_AGREED, _NO_CONNECTION, "SSH protocol banner", "EOF error")
# How many steps' CONNECT_TIMEOUT an attempt takes at most: paramiko counts it anew for each byte, key and jump host.
_STEPS = 12
# OpenSSH sends no banner before its identification, and packets of 256 KiB at most.
_BANNER_PARTS, _PACKET_SIZE = 512, 1 << 20
_MOST_ITEMS = 64
_READS_AT_ONCE = 128

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
        keep_alive(transport)
        # A ProxyCommand's socket and the channel through a jump host have no such options.
        if isinstance(transport.sock, socket.socket) and not isinstance(transport.sock, ProxySocket):
            transport.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _TCP_OPTIONS.items():
                # Some are Linux's alone.
                if hasattr(socket, name):
                    transport.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return result


def connect_in_time(method: Method, self: SSHConnector) -> Any:
    """Try once to connect; raise TimeoutError where that takes too long as a whole."""
    seconds = _STEPS * self.state.config.CONNECT_TIMEOUT
    with Timeout(seconds, False):
        return method(self)
    close(self)
    raise TimeoutError(f"{_NO_CONNECTION} {seconds:g} s")


def _reads(self: Any) -> int:
    """Count the reads from a server; now and then the other hosts have a turn, however fast it sends."""
    self.gpunode_reads = getattr(self, "gpunode_reads", 0) + 1
    if self.gpunode_reads % _READS_AT_ONCE == 0:
        sleep(0)
    return int(self.gpunode_reads)


def read_banner(method: Method, self: Packetizer, timeout: float) -> Any:
    """Read a part, 128 bytes at most, of what a server sends first; raise SSHException where that has no end."""
    if _reads(self) > _BANNER_PARTS:
        raise SSHException(": the server sent more than a banner and no identification")
    return method(self, timeout)


def read_bytes(method: Method, self: Packetizer, size: int, *args: Any, **kwargs: Any) -> Any:
    """Read so many bytes of a packet; raise SSHException where no packet is that large."""
    _reads(self)
    if size > _PACKET_SIZE:
        raise SSHException(f"the server announces a packet of {size} bytes")
    return method(self, size, *args, **kwargs)


def feed(method: Method, self: Channel, *args: Any) -> Any:
    """Take data of a command; raise TooLarge, which ends the connection, where a server breaks the channel's limit."""
    if len(self.in_buffer) + len(self.in_stderr_buffer) > 2 * self.in_window_size:
        raise TooLarge(too_large("the window of the SSH channel"))
    return method(self, *args)


def read_counted(method: Method, self: Any, message: Message, texts: int = 0) -> Any:
    """Parse a packet with the length of a list after so many texts; raise SSHException where that is too large."""
    for _ in range(texts):
        message.get_string()
    if (count := message.get_int()) > _MOST_ITEMS:
        raise SSHException(f"the server announces a list of {count} items")
    message.rewind()
    return method(self, message)


def protocol_error(method: Method, self: Transport) -> Exception | None:
    """Return why a connection ended, as an error that callers expect: odd packets raise KeyError in paramiko, say."""
    error: Exception | None = method(self)
    if error is None or isinstance(error, SSHException | OSError | EOFError):
        return error
    return SSHException(f"the server broke the SSH protocol ({type(error).__name__}: {error})")


def _failure(self: SSHConnector, error: Exception) -> ConnectError:
    """Return the error of a host that was not connected to, with its remedy where one is known."""
    if isinstance(error, ValueError):
        # Of a key file that is no text, a certificate that is none, or a port that is no number.
        used = f"ssh_key {self.data['ssh_key']}, ssh_port {self.data['ssh_port']}"
        return Unconnectable(f"Unusable connection data: {error} ({used})")
    # A server may say anything; what it calls a remedy is none.
    said, remedy = str(error).replace(REMEDY, "; remedy: "), None
    file, config = getattr(self.client, "_host_keys_filename", None), getattr(self.client, "_ssh_config", {})
    sock, proxy = config.get("sock"), getattr(error.__context__, "proxy", None)
    if isinstance(proxy, ProxySocket) and any(words in said for words in _UNANSWERED):
        said, remedy = proxy.state(), "correct the ssh_config until `ssh` connects by it"
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


def keep_alive(transport: Transport, seconds: float = _KEEPALIVE_SECONDS) -> None:
    """End a connection on which nothing comes while three requests, one each so many seconds, go unanswered.

    paramiko's own keepalive wants no answer. Any packet counts: on a slow line the answer comes after what waits there.
    """
    spawn(_watch, ref(transport), seconds)


def _watch(known_as: ref[Any], seconds: float) -> None:
    unanswered, before, request = 0, None, None
    sleep(seconds)
    while (transport := known_as()) is not None and transport.is_active():
        packets = transport.packetizer._Packetizer__sequence_number_in
        unanswered, before = unanswered if packets == before else 0, packets
        if unanswered == _KEEPALIVES:
            _silent.add(transport)
            transport.close()
        # A request waits where what was sent before it is not taken, and then no second one is needed.
        elif request is None or request.ready():
            request = spawn(_request_an_answer, transport)
        unanswered += 1
        # What nobody uses any more is freed meanwhile.
        del transport
        sleep(seconds)


def _request_an_answer(transport: Any) -> None:
    message = Message()
    message.add_byte(cMSG_GLOBAL_REQUEST)
    message.add_string("keepalive@openssh.com")
    message.add_boolean(True)
    with suppress(OSError, EOFError, SSHException):
        transport._send_user_message(message)


def is_broken(connector: Any) -> bool:
    """Say whether a connection that was made has ended."""
    transports = _transports(connector)
    return bool(transports) and not transports[0].is_active()


def why_broken(connector: Any, when: str) -> str:
    """Return what to print of a connection that has ended, with its remedy."""
    transports = _transports(connector)
    if ended := next((each for each in transports if isinstance(each.saved_exception, TooLarge)), None):
        return str(ended.saved_exception)
    return errors.broken(when, is_silent=any(transport in _silent for transport in transports))


def close(connector: Any, why: Exception | None = None) -> None:
    """Close a connection, and those to the hosts that it jumps over."""
    for transport in _transports(connector):
        transport.close()
        transport.saved_exception = why


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
