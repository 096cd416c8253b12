"""SIMULATED hosts: one SSH server that gives every connection the answer which a lab node gave to the same question.

`python -m tests.support.answering ANSWER HOST_KEY CLIENT_KEY`
prints its port, and serves until it is ended. Connections, key exchange and commands are real; no command is run.
User `hangs` waits for ever, and user `broken` gets a shell that does not start.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncssh

from gpunode.base.probe import batch_command
from gpunode.facts.node import Node as NodeFact
from gpunode.lab import access
from gpunode.lab.nodes import Node
from gpunode.lab.state import CHECKOUT, lab_folder

# What the recorded answer has in the place of the mark that each question carries.
MARK = "recorded-for-many"
# About what a node takes.
_SECONDS = 0.5
_MARK_OF = re.compile(rb"gpunode:reading ([0-9a-f]+)")


class _Login(asyncssh.SSHServer):
    """Let one key in."""

    def __init__(self, client: asyncssh.SSHKey) -> None:
        self._client = client

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return key.public_data == self._client.public_data


async def _answer(process: asyncssh.SSHServerProcess[bytes], known: bytes) -> None:
    """Answer a question with the recorded answer."""
    user = process.get_extra_info("username")
    if user == "hangs":
        await process.wait_closed()
        return
    mark = _MARK_OF.search((process.command or "").encode())
    await asyncio.sleep(_SECONDS)
    if mark is None or user == "broken":
        process.stderr.write(b"sh: libc.so.6: bad ELF magic\n")
        process.exit(127)
    else:
        process.stdout.write(known.replace(MARK.encode(), mark[1]))
        process.exit(0)


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


async def serve(known: bytes, host_key: str, client: asyncssh.SSHKey) -> None:
    """Print the port, and serve until the process is ended: in one loop, for a thread of each connection is one that
    wakes ten times a second.
    """
    listening = await asyncssh.listen(
        "127.0.0.1", 0, server_host_keys=[host_key], server_factory=lambda: _Login(client),
        process_factory=lambda process: _answer(process, known), encoding=None, backlog=1000, login_timeout=0,
    )  # fmt: skip
    print(listening.get_port(), flush=True)
    await listening.wait_closed()


def main(arguments: list[str]) -> None:
    """Serve one answer."""
    answer, host_key, client_key = arguments
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(serve(Path(answer).read_bytes(), host_key, asyncssh.read_public_key(client_key)))


if __name__ == "__main__":
    main(sys.argv[1:])
