"""Limits on what arrives: files and answers of a node, output of changes and of cluster commands, SSH servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent  # type: ignore[import-untyped]
import pytest
from gevent.subprocess import PIPE, Popen  # type: ignore[import-untyped]
from paramiko import Channel, SSHException

from gpunode.base.command_output import CLUSTER_SIZE, TooLarge, output_limit, read_output
from gpunode.base.messages import REMEDY
from gpunode.base.probe import Probe
from gpunode.base.probe_output import ANSWER_SIZE, TOO_LARGE, checked, decoded, values
from gpunode.base.reading import ParseError
from gpunode.base.shell_file import shell_file
from gpunode.fleet.access import connecting, connection
from gpunode.kubernetes import run_on
from gpunode.kubernetes.helm.commands import Command
from tests.support import hostile_ssh, warm
from tests.support.shell import sh

pytestmark = pytest.mark.pure
SMALL = (10_000,)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        ("head -c 1048576 /dev/zero > file", 1048576),
        ("head -c 1048580 /dev/zero > file", None),
        ("truncate -s 1T file", None),
        ("ln -s /dev/zero file", None),
        ("ln -s /dev/null file", 0),
        ("mkfifo file", None),
        ("mkdir file", None),
        ("ln -s file file", 0),
        (":", 0),
    ],
)
def test_a_file_of_a_node_is_read_up_to_its_limit_and_nothing_stops_the_reading(
    tmp_path: Path, make: str, size: int | None
) -> None:
    text = f'{shell_file("base/probe")}\n{make}\necho "text=$(file_base64 "$PWD/file")"'
    lines = sh(text, cwd=tmp_path).stdout.splitlines()
    if size is None:
        with pytest.raises(ParseError) as refused:
            decoded(values(lines), "text")
        assert str(tmp_path / "file") in str(refused.value) and REMEDY in str(refused.value)
    else:
        assert len(decoded(values(lines), "text") or "") == size


def test_a_whole_answer_is_cut_off_at_its_limit_and_known_by_that() -> None:
    probe = Probe([(None, "head -c 20000000 /dev/zero | tr '\\0' x; echo")])
    printed = subprocess.run(["sh", "-c", probe], capture_output=True, text=True, check=True).stdout
    assert len(printed) == ANSWER_SIZE
    with pytest.raises(ParseError, match=TOO_LARGE):
        checked(printed.splitlines())


def output_of(command: str, timeout: int | None = None) -> list[str]:
    with Popen(["sh", "-c", command], stdout=PIPE, stderr=PIPE) as process:
        try:
            return list(read_output(process.stdout, process.stderr, timeout).output_lines)
        finally:
            process.kill()


def output(command: str, limit: tuple[int, bool] | tuple[int], timeout: int | None = None) -> list[str]:
    with output_limit(*limit):
        return output_of(command, timeout)


@pytest.mark.parametrize("command", ["exec yes", "exec yes >&2", "exec cat /dev/zero", "yes & exec yes >&2"])
def test_a_command_that_prints_too_much_fails_while_it_prints(command: str) -> None:
    with pytest.raises(TooLarge):
        output(command, SMALL)


def test_of_a_change_the_newest_output_is_kept() -> None:
    lines = output("seq 100000; echo last", (640, True))
    assert lines == [*map(str, range(99992, 100001)), "last"]
    assert (
        connection.as_change(lambda: output_of("head -c 17000000 /dev/zero | tr '\\0' x; echo; echo last"))[-1]
        == "last"
    )


def test_what_is_within_the_limit_arrives_whole_and_a_silent_command_ends_in_time() -> None:
    long = "é" * 20_000
    assert output(f"echo; printf '%s\n' a {long}; printf b", (CLUSTER_SIZE,)) == ["", "a", long, "b"]
    with pytest.raises(TimeoutError):
        output("exec sleep 20", SMALL, timeout=0)


@pytest.mark.parametrize(
    ("words", "seconds", "status"),
    [("yes", 20, 255), ("exec sleep 20", 0.1, 124), ("echo ok", 20, 0), ("sh -c 'exit 3'", 20, 3)],
)
def test_a_cluster_s_command_on_this_machine_has_a_limit_and_a_deadline(
    monkeypatch: pytest.MonkeyPatch, words: str, seconds: Any, status: int
) -> None:
    monkeypatch.setattr(run_on, "CLUSTER_SIZE", *SMALL)
    # More than a pipe holds, of which it reads nothing.
    command = Command(("sh", "-c", words), {}, seconds, stdin="x" * 100_000)
    done = run_on.here(command)
    assert done.status == status and (status != 0 or done.out.strip() == "ok")


def test_connecting_has_one_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_STEPS", 5)
    connector: Any = SimpleNamespace(state=SimpleNamespace(config=SimpleNamespace(CONNECT_TIMEOUT=0.01)))
    with pytest.raises(TimeoutError):
        connecting.connect_in_time(lambda _: gevent.sleep(20), connector)
    assert connecting.connect_in_time(lambda _: 7, connector) == 7


def test_a_server_that_breaks_ssh_s_limits_ends_its_connection() -> None:
    packetizer: Any = SimpleNamespace()
    with pytest.raises(SSHException):
        for _ in range(10_000):
            connecting.read_banner(lambda *_: bytes(128), packetizer, 1.0)
    with pytest.raises(SSHException):
        connecting.read_bytes(lambda *_: pytest.fail("it was read"), packetizer, 1 << 31)
    channel: Any = Channel(1)
    channel.in_window_size = 1000
    with pytest.raises(TooLarge):
        for _ in range(100):
            connecting.feed(type(channel)._feed, channel, bytes(100))


# In the inventory: a megabyte instead of sixteen.
SMALLER = """
from contextvars import ContextVar
from gpunode.base import command_output
command_output._limit = ContextVar("output_limit", default=(1 << 20, False))
"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, int]]]:
    """Yield a folder with keys, and the port of a server for each way of harming."""
    folder, modes = tmp_path_factory.mktemp("ssh"), ["one-line", "window", "zeros", "large-packet"]
    for name in ("host", "mine"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    words = [sys.executable, hostile_ssh.__file__, str(folder / "host"), *modes]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        try:
            assert running.stdout is not None
            yield folder, {mode: int(running.stdout.readline()) for mode in modes}
        finally:
            running.kill()


def test_hosts_that_send_without_end_fail_alone(hostile: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    folder, ports = hostile
    (tmp_path / "known").touch()
    (tmp_path / "config").write_text(
        "Host proxy\n  ProxyCommand cat /dev/zero\n"
        "Host jump\n  ProxyJump hop\nHost hop\n  ProxyCommand sh -c 'echo no route >&2; exit 3'\n"
    )
    shared = {
        "ssh_user": "me", "ssh_key": str(folder / "mine"), "ssh_config_file": str(tmp_path / "config"),
        "ssh_strict_host_key_checking": "no", "ssh_known_hosts_file": str(tmp_path / "known"),
    }  # fmt: skip
    hosts = [(mode, {"ssh_hostname": "127.0.0.1", "ssh_port": port}) for mode, port in {**ports, "gone": 1}.items()]
    inventory = f"{SMALLER}\ngpus = ({[*hosts, ('proxy', {}), ('jump', {})]!r}, {shared!r})\n"
    (tmp_path / "fleet.py").write_text(inventory)
    done = warm.run("gpunode", "drift", "--json", tmp_path / "fleet.py", timeout=60)
    rows = json.loads(done.stdout.splitlines()[-1])["hosts"]
    found = {name: {item["code"] for item in row["findings"]} for name, row in rows.items()}
    assert done.returncode == 1
    too_large = {name: {"node.answer-too-large"} for name in ("one-line", "window")}
    assert found == too_large | {
        name: {"node.connection"} for name in ("zeros", "large-packet", "proxy", "jump", "gone")
    }
    assert "no route" in rows["jump"]["findings"][0]["cause"]
