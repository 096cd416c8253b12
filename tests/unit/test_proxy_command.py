"""Connections through a ProxyCommand, and connections that break, to a server of paramiko's on this machine."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paramiko
import pytest
from pyinfra.api import State

from gpunode.base.findings import FindingClass
from gpunode.fleet.access.connecting import is_broken
from gpunode.fleet.access.connection import explained
from gpunode.fleet.access.proxy import ProxySocket
from tests.support import warm

pytestmark = pytest.mark.pure
# Runs in sh what has the word MARK in it, and nothing else: at any other command it ends the connection.
MARK = "of-this-test"
SERVER = """
import socket, subprocess, sys, threading, time, paramiko
key = paramiko.Ed25519Key.from_private_key_file(sys.argv[1])
mine = open(sys.argv[3]).read()
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
class Server(paramiko.ServerInterface):
    def check_auth_publickey(self, user, key):
        return paramiko.AUTH_SUCCESSFUL if key.get_base64() in mine else paramiko.AUTH_FAILED
    def check_channel_request(self, kind, number):
        return paramiko.OPEN_SUCCEEDED
    def check_channel_exec_request(self, channel, command):
        threading.Thread(target=self.run, args=(channel, command.decode()), daemon=True).start()
        return True
    def run(self, channel, command):
        # paramiko answers the request once check_channel_exec_request has returned.
        time.sleep(0.2)
        if sys.argv[2] not in command:
            channel.get_transport().close()
            return
        done = subprocess.run(["sh"], input=command.encode(), capture_output=True)
        channel.sendall(done.stdout)
        channel.sendall_stderr(done.stderr)
        channel.send_exit_status(done.returncode)
        channel.close()
def serve(connection):
    transport = paramiko.Transport(connection)
    transport.add_server_key(key)
    try:
        transport.start_server(server=Server())
    except (paramiko.SSHException, EOFError, OSError):
        pass
while True:
    threading.Thread(target=serve, args=(listening.accept()[0],), daemon=True).start()
"""
RELAY = """
import os, socket, sys, threading
host, port, name, user, percent = sys.argv[1:]
assert (name, user, percent) == ("gpu-1", "me", "100%"), sys.argv
there = socket.create_connection((host, int(port)))
def back():
    while data := there.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=back, daemon=True).start()
while data := os.read(0, 65536):
    there.sendall(data)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """Yield a folder with a key, and the port of a server that lets it in."""
    folder = tmp_path_factory.mktemp("ssh")
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "relay.py").write_text(RELAY)
    words = [sys.executable, "-c", SERVER, str(folder / "host"), MARK, str(folder / "mine.pub")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield folder, int(running.stdout.readline())
        finally:
            running.kill()


def inventory(server: tuple[Path, int], folder: Path, proxy: str | None) -> Path:
    """Write an inventory of one host; proxy: the ProxyCommand, None for none."""
    keys, port = server
    data: dict[str, Any] = {
        "ssh_hostname": "gpu-1", "ssh_port": port, "ssh_user": "me", "ssh_key": str(keys / "mine"),
        "ssh_config_file": str(folder / "config"), "ssh_strict_host_key_checking": "no",
    }  # fmt: skip
    known = folder / "known hosts"
    known.touch()
    command = "" if proxy is None else f"  ProxyCommand {proxy}\n"
    (folder / "config").write_text(f"Host gpu-1\n  HostName 127.0.0.1\n{command}")
    (folder / "fleet.py").write_text(f"gpus = [('gpu-1', {data | {'ssh_known_hosts_file': str(known)}!r})]\n")
    return folder / "fleet.py"


def run(program: str, *words: object) -> subprocess.CompletedProcess[str]:
    return warm.run(program, *words, env={**os.environ, "NO_COLOR": "1", "SHELL": "/bin/sh"}, timeout=30)


def finding(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 1
    (item,) = json.loads(done.stdout.splitlines()[-1])["hosts"]["gpu-1"]["findings"]
    assert item["class"] == FindingClass.UNREACHABLE
    return dict(item)


def test_what_is_longer_than_a_pipe_goes_through_a_proxy_command_whole(
    server: tuple[Path, int], tmp_path: Path
) -> None:
    deploy = tmp_path / "long.py"
    deploy.write_text(
        "from pyinfra.operations import server\n"
        f"""server.shell(name="Long", commands=[": {MARK}; echo " + "x" * 100_000 + " | wc -c >{tmp_path}/length"])\n"""
    )
    proxy = f"{sys.executable} {server[0]}/relay.py %h %p %n %r 100%% 2>{tmp_path}/errors"
    done = run("pyinfra", inventory(server, tmp_path, proxy), deploy, "-y")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "length").read_text().strip() == "100001"


@pytest.mark.parametrize(
    ("proxy", "named"),
    [
        ("sh -c 'echo no route to %h >&2; exit 3'", ["status 3", "no route to 127.0.0.1"]),
        (
            "sh -c 'echo not authorized >&2; echo; printf \"log in\\0\" >&2; exit 1'",
            ["status 1: not authorized; log in"],
        ),
        ("sh -c 'echo garbage; echo busy >&2; sleep 60'", ["not connected in time", "busy"]),
        ("gpunode-no-such-program %h", ["status 127", "gpunode-no-such-program"]),
        ("true", ["status 0"]),
    ],
)
def test_a_proxy_command_that_ends_is_the_reason_with_its_status_and_words(
    server: tuple[Path, int], tmp_path: Path, proxy: str, named: list[str]
) -> None:
    item = finding(run("gpunode", "drift", "--json", inventory(server, tmp_path, proxy)))
    assert item["code"] == "node.connection" and [words for words in named if words not in item["cause"]] == []
    # An argument may be a password.
    assert "exit" not in item["cause"]


@pytest.mark.parametrize("known", ["", "other"])
@pytest.mark.parametrize("through_proxy", [True, False])
def test_the_remedy_of_a_host_key_makes_the_next_connection_succeed(
    server: tuple[Path, int], tmp_path: Path, through_proxy: bool, known: str
) -> None:
    keys, port = server
    relay = f"{sys.executable} {keys}/relay.py %h %p %n %r 100%%"
    fleet = inventory(server, tmp_path, relay if through_proxy else None)
    fleet.write_text(fleet.read_text().replace("'no'", "'yes'"))
    if known:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
        (tmp_path / "known hosts").write_text(f"[127.0.0.1]:{port} {(tmp_path / 'other.pub').read_text()}")
    remedy = finding(run("gpunode", "drift", "--json", fleet))["remedy"]
    for command in re.findall("`([^`]+)`", remedy):
        # A person accepts the key.
        text = command.replace("StrictHostKeyChecking=ask", "StrictHostKeyChecking=accept-new -o BatchMode=yes")
        subprocess.run(["sh", "-c", text], cwd=tmp_path, timeout=20, check=False)
    done = run("pyinfra", fleet, "exec", "--", "true", MARK)
    assert done.returncode == 0, (remedy, done.stderr)


def test_a_proxy_command_is_no_target_of_ctrl_c_and_ends_with_the_programs_that_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "answer")
    proxy = ProxySocket(f"sh -c 'sleep 20 & ps -o sid= -p $$; wait' >{tmp_path}/answer")
    with (tmp_path / "answer").open() as answer:
        assert int(answer.readline()) != os.getsid(0)
        started = time.monotonic()
        proxy.close()
        # It ends once no program has it open.
        assert answer.read() == "" and time.monotonic() - started < 10


@pytest.mark.parametrize("option", ["HostKeyAlias node-1", "IdentityFile {other}", "Match host gpu-1 exec true"])
def test_options_of_an_ssh_config_count(server: tuple[Path, int], tmp_path: Path, option: str) -> None:
    keys, port = server
    fleet = inventory(server, tmp_path, None)
    name = "node-1" if "Alias" in option else f"[127.0.0.1]:{port}"
    first = "Match host gpu-1 exec false\n  Port 1\n"
    (tmp_path / "known hosts").write_text(f"{name} {(keys / 'host.pub').read_text()}")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "other"], check=True)
    (tmp_path / "config").write_text(
        f"{first}Host gpu-1\n  Port {port}\n  {option.format(other=tmp_path / 'other')}\n  IdentityFile {keys}/mine\n"
        "Match host gpu-1\n  HostName 127.0.0.1\n"
    )
    text = fleet.read_text().replace(f"'ssh_port': {port}, ", "").replace(f"'ssh_key': '{keys / 'mine'}', ", "")
    fleet.write_text(text.replace("'no'", "'yes'"))
    done = run("pyinfra", fleet, "exec", "--", "true", MARK)
    assert done.returncode == 0, done.stderr


def test_proxy_command_none_is_no_proxy(server: tuple[Path, int], tmp_path: Path) -> None:
    done = run("pyinfra", inventory(server, tmp_path, "none"), "exec", "--", "true", MARK)
    assert done.returncode == 0, done.stderr


def test_a_connection_that_ends_while_a_command_is_written_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    client, transport = paramiko.SSHClient(), paramiko.Transport(ours)
    monkeypatch.setattr(client, "_transport", transport)
    monkeypatch.setattr(transport, "active", True)
    connector = SimpleNamespace(client=client, host=SimpleNamespace(name="gpu-1"), state=State())

    def closed(*_: Any) -> Any:
        raise EOFError

    with theirs:
        assert not is_broken(connector)
        succeeded, output = explained(closed, connector)
    assert not succeeded and output.stderr_lines and is_broken(connector)


@pytest.mark.parametrize("through_proxy", [True, False])
def test_a_connection_that_breaks_while_a_node_is_read_is_unreachable(
    server: tuple[Path, int], tmp_path: Path, through_proxy: bool
) -> None:
    relay = f"{sys.executable} {server[0]}/relay.py %h %p %n %r 100%%"
    fleet = inventory(server, tmp_path, relay if through_proxy else None)
    assert finding(run("gpunode", "drift", "--json", fleet))["code"] == "node.connection-broken"


@pytest.mark.parametrize("words", [["-y"], ["--dry"]])
def test_a_run_whose_connection_breaks_while_it_reads_says_so_and_fails(
    server: tuple[Path, int], tmp_path: Path, words: list[str]
) -> None:
    done = run("pyinfra", inventory(server, tmp_path, None), "deploys/gpu_node.py", *words)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert ("node: connection-broken: unreachable, gpu-1" if "-y" in words else "the connection broke") in done.stderr


def test_preflight_takes_pyinfra_s_arguments(server: tuple[Path, int], tmp_path: Path) -> None:
    deploy = tmp_path / "own.py"
    deploy.write_text("from gpunode.deploys.preflight import preflight\npreflight(_sudo=True, _env={'A': 'b'})\n")
    done = run("pyinfra", inventory(server, tmp_path, None), deploy, "-y")
    assert done.returncode == 1 and "Traceback" not in done.stderr and "connection-broken: unreachable" in done.stderr


@pytest.mark.parametrize("step", ["command", "fact"])
def test_an_operation_whose_connection_breaks_fails_on_its_host_alone(
    server: tuple[Path, int], tmp_path: Path, step: str
) -> None:
    deploy = tmp_path / "others.py"
    breaks = {
        "command": """server.shell(name="Break", commands=["true"])""",
        "fact": f"""files.file(name="Break", path="{tmp_path}/x", _if=lambda: host.name != "@local")""",
    }
    deploy.write_text(
        "from pyinfra import host\nfrom pyinfra.operations import files, server\n"
        f"""{breaks[step]}\nserver.shell(name="Last", commands=["touch {tmp_path}/last-{MARK}"])\n"""
    )
    fleet = inventory(server, tmp_path, None)
    fleet.write_text(fleet.read_text().replace("gpus = [", "gpus = ['@local', "))
    done = run("pyinfra", fleet, deploy, "-y")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert (tmp_path / f"last-{MARK}").exists()
