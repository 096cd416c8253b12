"""Connections through a ProxyCommand of an ssh_config, as OpenSSH makes them.

pyinfra 3.10 takes paramiko's (4.0), which writes a packet once, to a pipe that gevent has made non-blocking, and loses
what is above 64 KiB. Where the command has ended, it reads without end, and nobody sees what the command printed. The
patch that is offered to paramiko is docs/upstream/paramiko-proxy-command.patch.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable
from getpass import getuser
from tempfile import TemporaryFile
from typing import Any

from paramiko import ProxyCommandFailure
from pyinfra.connectors.sshuserclient import SSHClient

# A command's last words on standard error, in bytes, and how long it has to end once it has closed its output.
_LAST_WORDS, _SECONDS_TO_END = 2000, 1.0


class ProxyEnded(ProxyCommandFailure):
    """The end of a ProxyCommand: `error` says with which status and last words."""

    def __str__(self) -> str:
        return f"ProxyCommand `{self.command}` {self.error}"


class ProxySocket(socket.socket):
    """A socket whose other end is the standard input and output of a ProxyCommand."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours.family, ours.type, fileno=ours.detach())
        self.command, self._errors = command, TemporaryFile()  # noqa: SIM115
        shell = os.environ.get("SHELL") or "/bin/sh"
        # gevent makes both ends non-blocking, which few programs expect of their standard input and output.
        os.set_blocking(theirs.fileno(), True)
        try:
            self._process = subprocess.Popen(
                [shell, "-c", f"exec {command}"], stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._errors
            )
        finally:
            theirs.close()

    def recv(self, *args: Any) -> bytes:
        """Receive; raise ProxyEnded where the command has closed its output: paramiko hands that on as the reason."""
        if data := super().recv(*args):
            return data
        # No wait(): outside gevent's own loop it would block the other connections.
        last = time.monotonic() + _SECONDS_TO_END
        while self._process.poll() is None and time.monotonic() < last:
            time.sleep(0.02)
        raise self.ended()

    def ended(self) -> ProxyEnded:
        """Return the command's status and the last line that it wrote to standard error, as an error."""
        status = self._process.poll()
        how = "has not connected in time" if status is None else f"ended with status {status}"
        file = self._errors.fileno()
        said = os.pread(file, _LAST_WORDS, max(0, os.fstat(file).st_size - _LAST_WORDS)).decode(errors="replace")
        last = next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
        return ProxyEnded(self.command, f"{how}: {last}" if last else how)

    def close(self) -> None:
        """Close the socket, and end the command."""
        super().close()
        if self._process.poll() is None:
            self._process.terminate()


def through_proxy(
    parse_config: Callable[..., Any], self: SSHClient, name: str, arguments: dict[str, Any], **options: Any
) -> Any:
    """Read the ssh_config for a host; make the socket of its ProxyCommand, with the port and user that are used."""
    # pyinfra names no socket for the first jump host, and would connect to that without its own ProxyCommand.
    if arguments.get("sock", self) is None:
        del arguments["sock"]
    host, config, *rest = parse_config(self, name, arguments, **options)
    if isinstance(command := config.get("sock"), str) and "sock" not in arguments:
        used = {**config, **arguments}
        tokens = {"%%": "%", "%h": host, "%n": name, "%p": str(used["port"]), "%r": used.get("username") or getuser()}
        config["sock"] = ProxySocket(re.sub("%[%hnpr]", lambda found: tokens[found[0]], command))
    return host, config, *rest
