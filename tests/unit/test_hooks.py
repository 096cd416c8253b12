"""The hooks into pyinfra: each does its part, twice is once, and nothing depends on them."""

from __future__ import annotations

import logging
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import paramiko
import pyinfra
import pytest
from pyinfra.api import Config, Inventory, State, StringCommand, arguments, connectors
from pyinfra.api import util as pyinfra_util
from pyinfra.api.command import FunctionCommand
from pyinfra.api.connect import connect_all
from pyinfra.api.exceptions import ConnectError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.connectors import local, ssh
from pyinfra.connectors.local import LocalConnector
from pyinfra.connectors.ssh import SSHConnector
from pyinfra.connectors.sshuserclient import SSHClient
from pyinfra.context import ctx_host

from gpunode.facts.file import File
from gpunode.facts.node import Node as NodeFact
from gpunode.facts.node import NodeWithCandidates
from gpunode.facts.system import KernelFeatures
from gpunode.facts.toolkit import Smoke
from gpunode.fleet import hooks, shared_readings
from gpunode.fleet.access import connecting
from gpunode.fleet.hooks import hosts_within_open_files, operation_order
from gpunode.fleet.shared_readings import Changes, as_output
from gpunode.operations import files
from gpunode.operations.phase import announcing, is_announcing
from tests.support import warm
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

_HOOKED: tuple[tuple[Any, str], ...] = (
    (State, "init"),
    (SSHConnector, "connect"),
    (SSHClient, "exec_command"),
    *((connector, "run_shell_command") for connector in (SSHConnector, LocalConnector)),
    *((module, "execute_command_with_sudo_retry") for module in (ssh, local)),
    *((Host, name) for name in ("run_shell_command", "put_file", "rsync", "disconnect")),
    (FunctionCommand, "execute"),
    (arguments, "all_global_arguments"),
    (connectors, "entry_points"),
    # The name pyinfra.api.operation is the decorator, not the module.
    (sys.modules["pyinfra.api.operation"], "get_operation_order_from_stack"),
)


@pytest.fixture(autouse=True)
def _unhooked_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in _HOOKED:
        monkeypatch.setattr(owner, name, _original(owner, name))
    monkeypatch.delenv("GPUNODE_HOOKS", raising=False)


def _original(owner: Any, name: str) -> Any:
    method = getattr(owner, name)
    # Each hook has a mark of its own that begins so.
    while any(mark.startswith(hooks._MARK) for mark in vars(method)):
        method = method.__wrapped__
    return method


def _installed() -> list[Any]:
    return [getattr(owner, name) for owner, name in _HOOKED]


class Recorder:
    """Stand in for a connection: count what reaches the node, answer as a real sh does, but start no container."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.put_file = self.rsync = lambda *_, **__: True
        self.connect = self.disconnect = lambda: None

    def run_shell_command(self, command: Any, **_: Any) -> tuple[bool, Any]:
        self.commands.append(str(command))
        text = "true" if "gpunode-smoke" in str(command) else str(command)
        done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=False)
        return done.returncode == 0, as_output(done.stdout.splitlines())


@pytest.fixture
def node() -> Iterator[Host]:
    hooks.install()
    inventory = Inventory((["@local"], {}))
    state = State(inventory, Config())
    host: Host = next(iter(inventory))
    host.connector = Recorder()  # type: ignore[assignment]
    host.connected = True
    assert host.state is state
    with ctx_host.use(host):
        yield host


def _commands(host: Host) -> list[str]:
    return host.connector.commands  # type: ignore[attr-defined,no-any-return]


def test_the_smoke_test_is_no_reading_and_what_was_read_before_it_is_outdated(node: Host) -> None:
    reading = KernelFeatures().command()
    for _ in range(2):
        node.run_shell_command(reading)
    before = shared_readings.changes.count
    node.run_shell_command(Smoke().command(reload=False))
    assert shared_readings.changes.count > before
    node.run_shell_command(reading)
    assert ["gpunode-smoke" in each for each in _commands(node)] == [False, True, False]


def test_what_records_a_node_reads_it_and_tests_nothing() -> None:
    assert not any("gpunode-smoke" in fact().command() for fact in (NodeFact, NodeWithCandidates))


def test_installed_twice_is_installed_once() -> None:
    before = _installed()
    hooks.install()
    once = _installed()
    hooks.install()
    assert _installed() == once
    assert [name for (_, name), new, old in zip(_HOOKED, once, before, strict=True) if new is old] == []


def test_hooks_off_leaves_the_judging_of_settings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUNODE_HOOKS", "off")
    before = _installed()
    hooks.install()
    # The verdict, which needs the words of the commands, stays as well.
    stays = [State.init, FunctionCommand.execute]
    changed = [new for new, old in zip(_installed(), before, strict=True) if new is not old]
    assert changed == stays and not hooks.are_installed()


def test_a_run_tells_how_long_it_has_been_at_work_once_it_has_changed_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("gpunode.fleet.hooks.time.monotonic", lambda: now[0])
    monkeypatch.setattr(shared_readings, "changes", Changes())
    state = State()
    assert hooks.seconds_of_changes(state) == 0
    hooks.install()
    state.init(Inventory((["@local"], {})), Config())
    now[0] = 160.0
    assert hooks.seconds_of_changes(state) == 0
    with shared_readings.changes.change():
        assert hooks.seconds_of_changes(state) == 60
    monkeypatch.setattr(hooks, "are_installed", lambda: False)
    monkeypatch.setattr(shared_readings, "changes", Changes())
    # Nobody counts, so that there may have been a change.
    assert hooks.seconds_of_changes(state) == 60


@pytest.mark.parametrize("jumps", [False, True])
def test_a_connection_has_no_nagle_delay_wakes_seldom_and_ends_where_the_node_is_silent(
    monkeypatch: pytest.MonkeyPatch, jumps: bool
) -> None:
    monkeypatch.setattr(SSHConnector, "connect", lambda self: "connected")
    hooks.install()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as connection:
        client, channel = paramiko.SSHClient(), paramiko.Channel(1)
        transport: Any = paramiko.Transport(connection)
        # The channel through a jump host is no socket; the way to the jump host is.
        channel._set_transport(transport)  # type: ignore[attr-defined]
        client._transport = paramiko.Transport(channel) if jumps else transport  # type: ignore[attr-defined]
        connector: Any = SimpleNamespace(client=client)
        assert not connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        often = connection.gettimeout() or 0
        assert SSHConnector.connect(connector) == "connected"
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert 0 < 10 * often < (connection.gettimeout() or 0)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, between, count = (
            connection.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
        assert idle + between * count <= 60
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


@pytest.mark.parametrize(
    ("error", "context", "lasting", "named"),
    [
        (PyinfraError("No such private key file: /keys/ci"), None, True, "/keys/ci"),
        (UnicodeDecodeError("utf-8", b"\x80", 0, 1, "invalid start byte"), None, True, "ssh_key /keys/ci"),
        (ConnectError("('/keys/ci')"), PermissionError(13, "Permission denied", "/keys/ci"), True, "'/keys/ci'"),
        (ConnectError("(x)"), ConnectionRefusedError(111, "Connection refused"), False, "(x)"),
        (ConnectError("Authentication error"), None, False, "Authentication error"),
    ],
    ids=["absent", "no text", "unreadable", "refused", "not accepted"],
)
def test_what_stops_a_connection_is_that_hosts_alone_and_a_key_that_cannot_be_used_is_told_from_the_rest(
    error: Exception, context: OSError | None, lasting: bool, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    error.__context__ = context

    def connect(_: Any) -> None:
        raise error

    monkeypatch.setattr(SSHConnector, "connect", connect)
    hooks.install()
    connector: Any = SimpleNamespace(client=None, data={"ssh_key": "/keys/ci", "ssh_port": 22})
    with pytest.raises(ConnectError) as raised:
        SSHConnector.connect(connector)
    assert isinstance(raised.value, connecting.Unconnectable) is lasting
    # pyinfra tells its first argument.
    assert named in raised.value.args[0]


def test_a_key_exchange_that_ran_out_of_time_is_tried_once_more_and_prints_no_traceback() -> None:
    hooks.install()
    hooks.install()
    # By it paramiko's threads find a handler, and Python's last resort prints nothing.
    assert logging.getLogger("paramiko").handlers.count(hooks.NOBODY) == 1
    # By paramiko's and pyinfra's own words: a server that takes connections, and says nothing.
    with socket.create_server(("127.0.0.1", 0)) as server:
        data = {"ssh_port": server.getsockname()[1], "ssh_password": "x", "ssh_allow_agent": False,
                "ssh_look_for_keys": False, "ssh_strict_host_key_checking": "no"}  # fmt: skip
        state = State(Inventory(([("127.0.0.1", data)], {})), Config(CONNECT_TIMEOUT=1))
        with pytest.raises(PyinfraError):
            connect_all(state)
        server.setblocking(False)
        for _ in range(2):
            server.accept()[0].close()
        with pytest.raises(BlockingIOError):
            server.accept()


def test_which_connectors_are_installed_is_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Mock(wraps=_original(connectors, "entry_points"))
    monkeypatch.setattr(connectors, "entry_points", asked)
    hooks.install()
    assert [connectors.get_all_connectors()["ssh"] for _ in range(2)] == [SSHConnector] * 2
    asked.assert_called_once_with(group="pyinfra.connectors")


@pytest.mark.parametrize(("chosen", "parallel"), [({}, 90), ({"PARALLEL": 7}, 7)])
def test_as_many_hosts_at_once_as_there_are_or_as_were_chosen(chosen: dict[str, int], parallel: int) -> None:
    hooks.install()
    config = Config(**chosen)
    State(Inventory(([f"@fake/{number}" for number in range(90)], {})), config)
    assert parallel == config.PARALLEL


def test_hosts_at_once_stay_within_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(64, 256)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    monkeypatch.setattr("pyinfra.api.state.MAX_PARALLEL", 18)
    assert hosts_within_open_files(1000) == 82
    assert limits[-1] == (256, 256)


def _place(state: Any, depth: int) -> tuple[list[int], list[int]]:
    if depth:
        return _place(state, depth - 1)
    return pyinfra_util.get_operation_order_from_stack(state), operation_order(state)


@pytest.mark.parametrize("filename", [None, __file__, "not-on-the-stack.py"])
@pytest.mark.parametrize("cli", [True, False])
def test_an_operations_place_is_what_pyinfra_says(
    monkeypatch: pytest.MonkeyPatch, filename: str | None, cli: bool
) -> None:
    monkeypatch.setattr(pyinfra, "is_cli", cli)
    state = SimpleNamespace(current_deploy_filename=filename, current_op_file_number=3)
    theirs, ours = _place(state, 4)
    # Asked on one line, by functions of which only theirs lies within pyinfra.
    assert ours == theirs
    assert filename != __file__ or len(ours) >= 6


def test_two_operations_that_were_announced_ask_once(node: Host) -> None:
    with announcing(node):
        files.content(name="a", path="/nowhere/a", text="a")
        files.absent(name="b", path="/nowhere/b")
    assert _commands(node) == [] and not is_announcing(node)
    for path in ("/nowhere/a", "/nowhere/b"):
        node.get_fact(File, path=path)
    assert len(_commands(node)) == 1


def test_a_deploy_body_that_reads_a_fact_itself_is_announced_up_to_there(node: Host) -> None:
    with announcing(node):
        files.content(name="a", path="/nowhere/a", text="a")
        node.get_fact(KernelFeatures)
        pytest.fail("acted on no answer")
    assert _commands(node) == [] and not is_announcing(node)


_CHANGES: dict[str, Callable[[Host], object]] = {
    "command": lambda host: host.run_shell_command(StringCommand("true")),
    "text": lambda host: host.run_shell_command("true"),
    "put_file": lambda host: host.put_file("a", "b"),
    "rsync": lambda host: host.rsync("a", "b", []),
    "disconnect": lambda host: host.disconnect(),
    "function": lambda host: FunctionCommand(lambda state, host: True, [], {}).execute(host.state, host, {}),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_whatever_is_no_probe_ends_what_was_read(node: Host, tmp_path: Path, change: str) -> None:
    path = tmp_path / "file"
    with announcing(node):
        files.absent(name="a", path=str(path))
        files.absent(name="b", path=str(path))
    assert node.get_fact(File, path=str(path)).sha256 is None
    path.write_text("new")
    assert node.get_fact(File, path=str(path)).sha256 is None
    _CHANGES[change](node)
    assert node.get_fact(File, path=str(path)).sha256 is not None


_DEPLOY = """
from pyinfra.context import ctx_host
from gpunode.fleet import hooks
from gpunode.operations import files
from tests.support import warm
from tests.support.messages import unnamed
from gpunode.operations.phase import announcing

def body():
    for path, texts in (("{path}", ["x", None, "x"]), ("{path}-gone", ["x", None])):
        for number, text in enumerate(texts):
            act = files.absent if text is None else files.content
            act(name=f"{number} of {path}", path=path, **({} if text is None else {"text": text}))

if hooks.are_installed():
    with announcing(ctx_host.get()):
        body()
body()
"""


@pytest.mark.parametrize("switch", ["on", "off"])
def test_each_operation_of_a_run_sees_what_the_one_before_it_did(tmp_path: Path, switch: str) -> None:
    target, deploy = tmp_path / "target", tmp_path / "deploy.py"
    deploy.write_text(_DEPLOY.replace("{path}", str(target)))
    done = warm.run("pyinfra", "-y", "@local", deploy, env={"PATH": "/usr/bin:/bin", "GPUNODE_HOOKS": switch})
    assert done.returncode == 0, done.stdout + done.stderr
    assert target.read_text() == "x" and not (tmp_path / "target-gone").exists()


@pytest.mark.parametrize("text", ["driver = {\n", "import sys\nsys.exit()\n", "1 / 0\n"])
def test_an_exception_in_group_data_ends_pyinfra_with_file_and_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.py").write_text("from gpunode.fleet import hooks\n\nhooks.install()\n")
    (tmp_path / "site.py").write_text("gpus = ['a']\n")
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "gpus.py").write_text(text)
    (tmp_path / "group_data" / "gpu.py").write_text("")
    done = warm.run("pyinfra", "site.py", "debug-inventory", cwd=tmp_path)
    line = len(text.splitlines())
    assert done.returncode == 1 and "Traceback" not in done.stdout + done.stderr
    assert unnamed(done.stdout + done.stderr, f"group_data/gpus.py, line {line}", "[inventory.python]") == []
    (tmp_path / "group_data" / "gpus.py").write_text("")
    done = warm.run("pyinfra", "site.py", "debug-inventory", cwd=tmp_path)
    assert unnamed(done.stdout + done.stderr, "group_data/gpu.py", "[inventory.group-data-unused]") == []
