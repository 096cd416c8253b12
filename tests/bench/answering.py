"""SIMULATED hosts: one SSH server that gives every connection the answer which a lab node gave to the same question.

`python -m tests.bench.answering ANSWER HOST_KEY CLIENT_KEY` prints its port, and serves until it is ended. Connections,
key exchange and commands are real; no command is run.
"""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

# What the recorded answer has in the place of the mark that each question carries.
MARK = "recorded-for-the-bench"
# About what a node takes; and an answer must not come before the word that the question was accepted.
_SECONDS = 0.5
_MARK_OF = re.compile(rb"gpunode:reading ([0-9a-f]+) end")


class _Answers(paramiko.ServerInterface):
    """Let one key in, and answer every question with the recorded answer."""

    def __init__(self, recorded: bytes, client: str) -> None:
        self._recorded, self._client = recorded, client

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        known = key.get_base64() == self._client
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer, args=(channel, command), daemon=True).start()
        return True

    def _answer(self, channel: paramiko.Channel, command: bytes) -> None:
        mark = _MARK_OF.search(command)
        time.sleep(_SECONDS)
        if mark is not None:
            channel.sendall(self._recorded.replace(MARK.encode(), mark[1]))
        channel.send_exit_status(0 if mark is not None else 127)
        channel.close()


def _serve(connection: socket.socket, host_key: paramiko.PKey, answers: _Answers) -> None:
    transport = paramiko.Transport(connection)
    transport.add_server_key(host_key)
    transport.start_server(server=answers)


def main(arguments: list[str]) -> None:
    """Serve until the process is ended."""
    answer, host_key, client_key = arguments
    answers = _Answers(Path(answer).read_bytes(), Path(client_key).read_text(encoding="utf-8").split()[1])
    key = paramiko.Ed25519Key.from_private_key_file(host_key)
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A thread of its own: the first words of a connection are waited for.
            threading.Thread(target=_serve, args=(connection, key, answers), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
