"""An SSH server on the loopback address, as a process of its own: `python -m tests.support.ssh_server`.

It prints its port, takes any password, and runs commands by sh, each connection in a process of its own, whose id is in
$SERVER: stopped by SIGSTOP, its kernel still answers for it, as that of a machine whose user space hangs.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import paramiko
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED


class Server(paramiko.ServerInterface):
    """Let everybody in, and run what is sent."""

    def check_auth_password(self, username: str, password: str) -> int:
        """Take any password."""
        return AUTH_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        """Open any session."""
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: Any, command: bytes) -> bool:
        """Run a command."""
        threading.Thread(target=_run, args=(channel, command), daemon=True).start()
        return True


def _run(channel: Any, command: bytes) -> None:
    environment = {**os.environ, "SERVER": str(os.getpid())}
    ended = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        channel.sendall(ended.stdout)
        channel.sendall_stderr(ended.stderr)
        channel.send_exit_status(ended.returncode)
        channel.close()


@contextlib.contextmanager
def server() -> Iterator[dict[str, Any]]:
    """Yield the connection data of a server."""
    words = [sys.executable, "-m", __name__]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            yield {
                "ssh_hostname": "127.0.0.1",
                "ssh_port": int(process.stdout.readline()),
                "ssh_password": "x",
                "ssh_allow_agent": False,
                "ssh_look_for_keys": False,
                "ssh_strict_host_key_checking": "no",
                "ssh_known_hosts_file": "/dev/null",
            }
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def main() -> None:
    """Serve each connection by a process of its own, until this one is ended."""
    key = paramiko.ECDSAKey.generate()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection = listening.accept()[0]
            if os.fork() == 0:
                transport = paramiko.Transport(connection)
                transport.add_server_key(key)
                transport.start_server(server=Server())
                transport.join()
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    main()
