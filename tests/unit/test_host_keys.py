"""A host key that is unknown, or another one, is told with commands that mend it: they are run here as they stand.

pyinfra itself connects, to a server of paramiko's that shows a key and lets nobody in.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.base.findings import FindingClass
from tests.support import warm

pytestmark = pytest.mark.pure
FILE = "/home/me/.ssh/known_hosts"
UNKNOWN = "SSH error (StrictPolicy: No host key for {} found in known_hosts)"
CHANGED = "SSH host key error (Host key for {} does not match.)"
SERVER = """
import socket, sys, threading, paramiko
key = paramiko.Ed25519Key.from_private_key_file(sys.argv[1])
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
def serve(connection):
    transport = paramiko.Transport(connection)
    transport.add_server_key(key)
    try:
        transport.start_server(server=paramiko.ServerInterface())
        transport.join(20)
    except (paramiko.SSHException, EOFError, OSError):
        pass
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""


def commands(said: str) -> list[str]:
    return re.findall(r"`([^`]+)`", said)


def _key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    words = [sys.executable, "-c", SERVER, str(_key(tmp_path / "host"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield int(server.stdout.readline())
        finally:
            server.kill()


def _found(inventory: Path) -> dict[str, str]:
    done = warm.run("gpunode", "drift", "--json", inventory, env={**os.environ, "NO_COLOR": "1"})
    (item,) = json.loads(done.stdout.splitlines()[-1])["hosts"]["gpu-1"]["findings"]
    assert done.returncode == 1 and item["class"] == FindingClass.UNREACHABLE
    return {"cause": item["cause"], "remedy": item["remedy"]}


@pytest.mark.parametrize("known", ["nothing", "another key"])
def test_the_commands_that_are_told_have_the_node_reached(tmp_path: Path, port: int, known: str) -> None:
    file = tmp_path / "known hosts"
    other = _key(tmp_path / "other").with_suffix(".pub").read_text()
    file.write_text("" if known == "nothing" else f"[127.0.0.1]:{port} {other}")
    data = {
        "ssh_hostname": "127.0.0.1", "ssh_port": port, "ssh_user": "me", "ssh_key": str(_key(tmp_path / "mine")),
        "ssh_known_hosts_file": str(file), "ssh_strict_host_key_checking": "yes",
    }  # fmt: skip
    (tmp_path / "fleet.py").write_text(f"nodes = [('gpu-1', {data!r})]\n")
    before = _found(tmp_path / "fleet.py")
    assert ("No host key" if known == "nothing" else "does not match") in before["cause"]
    for command in commands(before["remedy"]):
        subprocess.run(command, shell=True, check=True, capture_output=True, timeout=30)
    after = _found(tmp_path / "fleet.py")
    # It was met, and it is its business that it lets nobody in.
    assert "Authentication error" in after["cause"]
