"""SIMULATED hosts: one SSH server that gives every connection the answer which a lab node gave to the same question.

`python -m tests.answering ANSWER HOST_KEY CLIENT_KEY` prints its port, and serves until it is ended. Connections, key
exchange and commands are real; no command is run. Who comes as user `hangs` waits for ever, and who comes as `broken`
finds a shell that does not start.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paramiko
from paramiko.common import AUTH_FAILED, AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from gpunode.base.probe import batch_command
from gpunode.facts.node import Node as NodeFact
from gpunode.lab import access
from gpunode.lab.nodes import Node
from gpunode.lab.state import CHECKOUT, lab_folder

# What the recorded answer has in the place of the mark that each question carries.
MARK = "recorded-for-many"
# About what a node takes.
_SECONDS = 0.5
_MARK_OF = re.compile(rb"gpunode:reading ([0-9a-f]+) end")


class _Transport(paramiko.Transport):
    """Begin an answer after the word that the question was accepted: among a thousand threads it came before it."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.accepted: list[threading.Thread] = []

    def _send_user_message(self, data: paramiko.Message) -> None:
        accepted, self.accepted = self.accepted, []
        super()._send_user_message(data)  # type: ignore[misc]
        for answer in accepted:
            answer.start()


class _Answers(paramiko.ServerInterface):
    """Let one key in, and answer every question with the recorded answer."""

    def __init__(self, recorded: bytes, client: str) -> None:
        self._recorded, self._client, self._user = recorded, client, ""

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self._user = username
        known = key.get_base64() == self._client
        return AUTH_SUCCESSFUL if known else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        if self._user != "hangs":
            transport = channel.get_transport()
            assert isinstance(transport, _Transport)
            transport.accepted.append(threading.Thread(target=self._answer, args=(channel, command), daemon=True))
        return True

    def _answer(self, channel: paramiko.Channel, command: bytes) -> None:
        mark = _MARK_OF.search(command)
        time.sleep(_SECONDS)
        if mark is None or self._user == "broken":
            channel.sendall_stderr(b"sh: libc.so.6: bad ELF magic\n")
            channel.send_exit_status(127)
        else:
            channel.sendall(self._recorded.replace(MARK.encode(), mark[1]))
            channel.send_exit_status(0)
        channel.close()


def _serve(connection: socket.socket, host_key: paramiko.PKey, answers: _Answers) -> None:
    transport = _Transport(connection)
    transport.add_server_key(host_key)
    transport.start_server(server=answers)


def recorded(node: Node) -> bytes:
    """Return what a lab node answers to the question that drift asks."""
    question = batch_command(NodeFact().command().texts, MARK)
    command = [*access.ssh_command(lab_folder(node.lab), node.address), question]
    return subprocess.run(command, capture_output=True, check=True).stdout


@contextmanager
def answering(folder: Path, answer: bytes) -> Iterator[dict[str, object]]:
    """Serve an answer; return the host data by which pyinfra reaches it. Keys and known hosts are in `folder`."""
    (folder / "answer").write_bytes(answer)
    for name in ("host", "client"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    command = [sys.executable, "-m", __name__, "answer", "host", "client.pub"]
    with subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": str(CHECKOUT)}, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, text=True,
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline())
            key = " ".join((folder / "host.pub").read_text(encoding="utf-8").split()[:2])
            known = folder / "known_hosts"
            known.write_text(f"[127.0.0.1]:{port} {key}\n", encoding="utf-8")
            yield {
                "ssh_hostname": "127.0.0.1", "ssh_port": port, "ssh_user": "root", "ssh_key": str(folder / "client"),
                "ssh_known_hosts_file": str(known), "ssh_strict_host_key_checking": "yes",
            }  # fmt: skip
        finally:
            server.kill()


def inventory(folder: Path, lab: str, hosts: dict[str, dict[str, object]], group: str = "lab") -> Path:
    """Write an inventory of SIMULATED hosts (name -> data) with the lab's repositories, and return its path.

    group: whose data in inventories/group_data are the settings; pyinfra names the group after the file
    """
    path = folder / f"{group}.py"
    path.write_text(
        f"import os, runpy\nos.environ['GPUNODE_LAB'] = {lab!r}\n"
        f"(_, _data), *_ = runpy.run_path({str(CHECKOUT / 'inventories' / 'lab.py')!r})['nodes']\n"
        f"nodes = [(name, {{**_data, **data}}) for name, data in {hosts!r}.items()]\n",
        encoding="utf-8",
    )
    if not (folder / "group_data").exists():
        (folder / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
    return path


def main(arguments: list[str]) -> None:
    """Serve until the process is ended."""
    answer, host_key, client_key = arguments
    recorded, client = Path(answer).read_bytes(), Path(client_key).read_text(encoding="utf-8").split()[1]
    key = paramiko.Ed25519Key.from_private_key_file(host_key)
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # A thread of its own: the first words of a connection are waited for.
            threading.Thread(target=_serve, args=(connection, key, _Answers(recorded, client)), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1:])
