"""Connections through a ProxyCommand of an ssh_config, as OpenSSH makes them.

paramiko's ProxyCommand (4.0) writes a packet once, to a pipe that gevent has made non-blocking, and loses what is above
64 KiB; it reads without end where the command has ended. A patch for it is docs/upstream/paramiko-proxy-command.patch.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from getpass import getuser
from threading import Thread
from types import SimpleNamespace
from typing import Any

from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.connectors.sshuserclient.client import get_ssh_config

from gpunode.base.folding import in_one_line
from gpunode.base.terminal import printable

_ERRORS_SIZE = 8 << 10


class ProxySocket(socket.socket):
    """A socket whose other end is the standard input and output of a ProxyCommand."""

    def __init__(self, command: str) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours.family, ours.type, fileno=ours.detach())
        self._command, self._errors, self._was_ended = command, b"", False
        words = [os.environ.get("SHELL") or "/bin/sh", "-c", f"exec {command}"]
        with theirs:
            # gevent makes both ends non-blocking, which few programs expect of their standard input and output.
            os.set_blocking(theirs.fileno(), True)
            # In a session of its own, Ctrl-C ends gpunode and not the connection, and nothing waits for a password.
            self._process = subprocess.Popen(
                words, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE, start_new_session=True
            )
        self._reader = Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    def _read_errors(self) -> None:
        """Keep the end of what the command writes to standard error."""
        assert self._process.stderr is not None
        with self._process.stderr as stream:
            while data := stream.read1(_ERRORS_SIZE):  # type: ignore[attr-defined]
                self._errors = (self._errors + data)[-_ERRORS_SIZE:]

    def state(self) -> str:
        """Return what became of the command: its status, and what it wrote to standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)
            # A program that it started, and that goes on, has standard error open, too.
            self._reader.join(1)
        status = None if self._was_ended else self._process.returncode
        how = "has not connected in time" if status is None else f"ended with status {status}"
        lines = printable(self._errors.decode(errors="replace")).splitlines()
        words = in_one_line("; ".join(line.strip() for line in lines if line.strip()))
        # The rest of the command may hold a password.
        return f"ProxyCommand `{self._command.split()[0]} …` {how}{f': {words}' if words else ''}"

    def close(self) -> None:
        """Close the socket, and end the command with the programs that it started."""
        with suppress(OSError, subprocess.TimeoutExpired):
            self.settimeout(0)
            if not self.recv(1, socket.MSG_PEEK):
                # The end of what a command prints is seen a moment before its own end.
                self._process.wait(1)
        if self._process.poll() is None:
            self._was_ended = True
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGTERM)
        super().close()


def with_proxy(connect: Callable[..., Any], self: SSHClient, *args: Any, **kwargs: Any) -> Any:
    """Connect, to a jump host, say; the error names the ProxyCommand by which that failed, as `proxy`."""
    try:
        return connect(self, *args, **kwargs)
    except Exception as error:
        sock = getattr(self, "_ssh_config", {}).get("sock")
        if isinstance(sock, ProxySocket):
            error.proxy = sock  # type: ignore[attr-defined]
        raise


def through_proxy(
    parse_config: Callable[..., Any], self: SSHClient, name: str, arguments: dict[str, Any], **options: Any
) -> Any:
    """Read the ssh_config for a host; make the socket of its ProxyCommand, with the port and user that are used."""
    # pyinfra names no socket for the first jump host, and would connect to that without its own ProxyCommand.
    if arguments.get("sock", self) is None:
        del arguments["sock"]
    host, config, *rest = parse_config(self, name, arguments, **options)
    used = {**config, **arguments}
    if isinstance(command := used.get("sock"), str):
        tokens = {"%%": "%", "%h": host, "%n": name, "%p": str(used["port"]), "%r": used.get("username") or getuser()}
        used["sock"] = config["sock"] = ProxySocket(re.sub("%[%hnpr]", lambda found: tokens[found[0]], command))
    file = get_ssh_config(options.get("ssh_config_file"))
    known = file.lookup(name) if file else {}
    if len(keys := known.get("identityfile", [])) > 1 and "pkey" not in arguments:
        # pyinfra takes the first that it can read; paramiko tries these, too.
        config["key_filename"] = keys
    if alias := known.get("hostkeyalias"):
        # paramiko looks for the key of the name that it is given, with any port but 22.
        config["sock"] = used.get("sock") or socket.create_connection((host, used["port"]), used.get("timeout"))
        host, config["port"] = alias, 22
        arguments.pop("port", None)
    return host, config, *rest


def match_exec(command: str, **_: Any) -> SimpleNamespace:
    """Run what `Match exec` names; pyinfra hands it to the shell as the name of a script."""
    return SimpleNamespace(ok=subprocess.run(command, shell=True, stdout=subprocess.DEVNULL).returncode == 0)
