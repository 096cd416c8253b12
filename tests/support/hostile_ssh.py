"""An SSH server that sends without end to each client that connects.

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
            # A gigabyte.
            for _ in range(65536):
                channel.sendall(b"x" * 16384)
            channel.send_exit_status(0)
            channel.close()


def zeros(connection: socket.socket) -> None:
    """Send a first line without end."""
    while True:
        connection.sendall(bytes(65536))


def large_packet(connection: socket.socket) -> None:
    """Announce a packet of 4 GB, and send it."""
    connection.sendall(b"SSH-2.0-large\r\n" + (0xFFFFFFF4).to_bytes(4, "big"))
    zeros(connection)


RAW: dict[str, Callable[[socket.socket], None]] = {"zeros": zeros, "large-packet": large_packet}


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
