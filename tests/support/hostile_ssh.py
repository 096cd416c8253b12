"""An SSH server that harms whoever connects: it sends without end, or one byte at a time.

Run as a program: HOST_KEY_FILE MODE...; it prints a port on 127.0.0.1 for each mode, and serves until it is killed.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

# What a command prints again and again; the streams that it is printed on.
FLOODS = {"lines": b"x\n" * 8192, "one-line": b"x" * 16384, "stderr": b"x\n" * 8192, "large-lines": b"x" * 9999 + b"\n"}


class Server(paramiko.ServerInterface):
    """Let everybody in, and answer each command without end."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def check_auth_none(self, username: str) -> int:
        """Let everybody in."""
        return AUTH_SUCCESSFUL

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        """Let everybody in."""
        return AUTH_SUCCESSFUL

    def get_allowed_auths(self, username: str) -> str:
        """Return the method that the product uses."""
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Open each session."""
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        """Answer a command."""
        threading.Thread(target=self._flood, args=(channel,), daemon=True).start()
        return True

    def _flood(self, channel: paramiko.Channel) -> None:
        # paramiko answers the request once check_channel_exec_request has returned.
        time.sleep(0.2)
        with contextlib.suppress(OSError, EOFError):
            if self._mode == "window":
                # Data beyond the window, which an honest server never sends.
                channel.out_window_size = 1 << 40
            send = channel.sendall_stderr if self._mode == "stderr" else channel.sendall
            # A gigabyte.
            for _ in range(65536):
                send(FLOODS.get(self._mode, FLOODS["one-line"]))
            channel.send_exit_status(0)
            channel.close()


def zeros(connection: socket.socket) -> None:
    """Send a first line without end."""
    while True:
        connection.sendall(bytes(65536))


def banners(connection: socket.socket) -> None:
    """Send lines in front of the server's identification, without end."""
    while True:
        connection.sendall(b"hello\r\n" * 1000)


def slow_banner(connection: socket.socket) -> None:
    """Send a first line, one byte per second."""
    while True:
        connection.sendall(b"x")
        time.sleep(1)


def slow(connection: socket.socket) -> None:
    """Send the key exchange one byte per second."""
    connection.sendall(b"SSH-2.0-slow\r\n")
    for byte in (20000).to_bytes(4, "big") + bytes(20000):
        connection.sendall(bytes([byte]))
        time.sleep(1)


def large_packet(connection: socket.socket) -> None:
    """Announce a packet of 4 GB, and send it."""
    connection.sendall(b"SSH-2.0-large\r\n" + (0xFFFFFFF4).to_bytes(4, "big"))
    zeros(connection)


def ignored(connection: socket.socket) -> None:
    """Send messages that are to be ignored, without end."""
    packet = (12).to_bytes(4, "big") + bytes([4, 2, *bytes(10)])
    connection.sendall(b"SSH-2.0-ignored\r\n")
    while True:
        connection.sendall(packet * 4096)


RAW: dict[str, Callable[[socket.socket], None]] = {
    "zeros": zeros, "banners": banners, "slow-banner": slow_banner, "slow": slow, "large-packet": large_packet,
    "ignored": ignored,
}  # fmt: skip


def serve(mode: str, key: paramiko.PKey, connection: socket.socket) -> None:
    """Serve one connection."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        if mode in RAW:
            RAW[mode](connection)
        transport = paramiko.Transport(connection)
        transport.add_server_key(key)
        transport.start_server(server=Server(mode))


def listen(mode: str, key: paramiko.PKey, listening: socket.socket) -> None:
    """Serve whoever connects."""
    while True:
        threading.Thread(target=serve, args=(mode, key, listening.accept()[0]), daemon=True).start()


def main() -> None:
    """Serve until killed."""
    key = paramiko.Ed25519Key.from_private_key_file(sys.argv[1])
    for mode in sys.argv[2:]:
        listening = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=listen, args=(mode, key, listening)).start()
        print(listening.getsockname()[1], flush=True)


if __name__ == "__main__":
    main()
