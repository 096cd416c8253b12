"""How many hosts one process is connected to at the same time while it reads them: few, however many there are."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent  # type: ignore[import-untyped]
import paramiko
import psutil  # type: ignore[import-untyped]
import pytest
from pyinfra.api.exceptions import ConnectError
from pyinfra.connectors.fake import FakeConnector

from gpunode.facts.node import Node
from gpunode.fleet import nodes
from gpunode.fleet.access import connecting
from tests.support.answering import answering

pytestmark = [pytest.mark.simulated, pytest.mark.tier2]
HOSTS = 20


class Connections:
    """Be what pyinfra's connector without machines does meanwhile: which hosts are connected, and the most there were.

    refused: these cannot be reached; strange: connecting to these fails as nobody foresaw; cut: their connection breaks
    when it is closed; hangs: these never answer; clings: these never end when they are left; greedy: the answer of
    these would take more memory than any process may
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open: set[str] = set()
        self.most = 0
        self.refused: set[str] = set()
        self.cut: set[str] = set()
        self.hangs: set[str] = set()
        self.strange: set[str] = set()
        self.clings: set[str] = set()
        self.greedy: set[str] = set()
        monkeypatch.setattr(FakeConnector, "connect", lambda connector: self._connect(connector.host.name))
        monkeypatch.setattr(FakeConnector, "disconnect", lambda connector: self._disconnect(connector.host.name))
        asked = FakeConnector.run_shell_command

        def answer(connector: FakeConnector, *args: Any, **kwargs: Any) -> Any:
            if connector.host.name in self.hangs:
                gevent.sleep(60)
            if connector.host.name in self.greedy:
                bytes(1 << 33)  # zeros that nobody reads take none of the memory of the machine
            return asked(connector, *args, **kwargs)

        monkeypatch.setattr(FakeConnector, "run_shell_command", answer)

    def _connect(self, host: str) -> None:
        gevent.sleep(0)
        if host in self.refused:
            raise ConnectError("refused")
        if host in self.strange:
            raise RuntimeError("strange")
        self.open.add(host)
        self.most = max(self.most, len(self.open))

    def _disconnect(self, host: str) -> None:
        self.open.discard(host)
        if host in self.cut:
            raise EOFError
        if host in self.clings:
            gevent.sleep(60)


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connections]:
    monkeypatch.setattr(nodes, "AT_ONCE", 3)
    yield Connections(monkeypatch)


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    (path := tmp_path / "inventory.py").write_text(
        f"gpu_nodes = [(f'@fake/{{number}}', {{'fake_delay': 0.01, 'fake_delay_jitter': 0}})"
        f" for number in range({HOSTS})]\n"
    )
    return path


def read(inventory: Path, **options: Any) -> tuple[dict[str, nodes.Answer[Any]], list[int]]:
    """Return the answers by host, and how many hosts were told as done, each time."""
    told: list[int] = []
    found = nodes.read(inventory, Node, lambda hosts, done: told.append(done), processes=1, **options)
    return {answer.name: answer for answer in found}, told


def test_each_host_is_left_when_it_has_answered_and_few_are_connected_at_once(
    connections: Connections, inventory: Path
) -> None:
    found, told = read(inventory)
    assert len(found) == HOSTS and told == list(range(HOSTS + 1))
    assert (connections.most, connections.open) == (3, set())


def test_hosts_that_are_not_reached_or_break_off_hold_up_nobody(connections: Connections, inventory: Path) -> None:
    connections.refused = {f"@fake/{number}" for number in range(4)}
    connections.strange = {"@fake/4"}
    connections.cut = {"@fake/7"}
    found, told = read(inventory)
    reasons = {name: answer.reason for name, answer in found.items() if answer.reading is None}
    assert reasons == {**dict.fromkeys(connections.refused, "refused"), "@fake/4": "strange"}
    # Nothing is as a node of ours would say it; but it came, also from the one whose connection broke at the end.
    assert all(found[f"@fake/{number}"].reading is not None for number in range(5, HOSTS))
    assert told[-1] == HOSTS and connections.open == set()


def test_hosts_that_hang_take_their_places_only_for_as_long_as_they_are_waited_for(
    connections: Connections, inventory: Path
) -> None:
    connections.hangs = {f"@fake/{number}" for number in range(4)}
    found, told = read(inventory, seconds=0.2)
    silent = {name for name, answer in found.items() if answer.reason == "no answer within 0.2 s"}
    assert silent == connections.hangs
    assert told[-1] == HOSTS and (connections.most, connections.open) == (3, set())


def test_hosts_that_cling_when_they_are_left_keep_no_place(
    connections: Connections, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where what sudo asked by is to be taken away from a node that hangs by now.
    monkeypatch.setattr(connecting, "SECONDS_TO_LEAVE", 0.1)
    connections.clings = {f"@fake/{number}" for number in range(HOSTS)}
    with gevent.Timeout(20):
        found, told = read(inventory)
    assert told[-1] == HOSTS and all(answer.reading is not None for answer in found.values())


def test_a_host_for_which_memory_is_lacking_fails_alone(connections: Connections, inventory: Path) -> None:
    connections.greedy = {"@fake/3"}
    before = resource.getrlimit(resource.RLIMIT_DATA)
    found, told = read(inventory)
    without = {name for name, answer in found.items() if "memory" in str(answer.reason)}
    assert without == connections.greedy and told[-1] == HOSTS
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_whoever_ends_it_waits_for_no_host_and_none_counts_as_done(connections: Connections, inventory: Path) -> None:
    told: list[int] = []
    connections.hangs = {f"@fake/{number}" for number in range(HOSTS)}

    class Ended(BaseException):
        pass

    timer = gevent.get_hub().loop.timer(0.3)
    timer.start(gevent.getcurrent().throw, Ended)
    # Seconds; the hosts hang for longer.
    with gevent.Timeout(20), pytest.raises(Ended):
        nodes.read(inventory, Node, lambda hosts, done: told.append(done), processes=1)
    assert connections.open == set() and told == [0]


@pytest.mark.real
@pytest.mark.parametrize("key", ["client", "host"], ids=["the server's", "another"])
def test_connections_of_ssh_are_closed_also_where_nobody_was_let_in(tmp_path: Path, key: str) -> None:
    with answering(tmp_path, b"nothing that a node says") as data:
        known = {**data, "ssh_key": str(tmp_path / key), "ssh_look_for_keys": False, "ssh_allow_agent": False}
        (path := tmp_path / "inventory.py").write_text(f"gpu_nodes = [(f'gpu-{{n}}', {known!r}) for n in range(8)]\n")
        found, _ = read(path)
        port = data["ssh_port"]
        still = [each for each in psutil.Process().net_connections() if each.raddr and each.raddr.port == port]
    assert {answer.reading is not None for answer in found.values()} == {key == "client"}
    assert len(found) == 8 and still == []


def test_behind_jump_hosts_each_connection_on_the_way_is_one_of_the_host_s() -> None:
    ways = [paramiko.Transport(socket.socket())]
    for _ in range(2):
        channel = paramiko.Channel(1)
        channel.transport = ways[0]
        ways.insert(0, paramiko.Transport(channel))
    client = paramiko.SSHClient()
    client._transport = ways[0]  # type: ignore[attr-defined]
    assert connecting._transports(SimpleNamespace(client=client)) == tuple(ways)
    assert connecting._transports(SimpleNamespace()) == ()
