"""What takes a taint off a node once its pull was good: real HTTPS of this machine; the API server is SIMULATED."""

from __future__ import annotations

import http.server
import json
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from gpunode.agent import gate
from gpunode.agent.gate import TAINT, Gate, Later
from tests.support.certificate import self_signed
from tests.support.messages import unnamed
from tests.support.slow_server import dripping

pytestmark = [
    pytest.mark.simulated,
    pytest.mark.tier2,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl"),
]

OURS = {"key": TAINT, "value": "first-boot", "effect": "NoSchedule"}
OTHER = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@dataclass
class Api:
    """SIMULATED: hold the nodes of a cluster, and answer as an API server does."""

    url: str
    ca: Path
    token: Path
    taints: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    version: int = 1
    asked: list[str] = field(default_factory=list)
    between: Callable[[], None] = lambda: None
    answers: int | None = None

    @property
    def config(self) -> Gate:
        return Gate(self.url, str(self.ca), str(self.token))

    def answer(self, method: str, path: str, token: str, sent: bytes) -> tuple[int, dict[str, Any]]:
        self.asked.append(f"{method} {path}")
        name = path.removeprefix("/api/v1/nodes/").partition("?")[0]
        if self.answers is not None:
            return self.answers, {"message": "not now"}
        if token != "Bearer secret-of-the-gate":
            return 401, {"message": "Unauthorized"}
        if name not in self.taints:
            return 404, {"message": f'nodes "{name}" not found'}
        if method == "PATCH":
            self.between()
            change = json.loads(sent)
            if change["metadata"]["resourceVersion"] != str(self.version):
                return 409, {"message": "the object has been modified"}
            assert set(change) == {"metadata", "spec"} and set(change["spec"]) == {"taints"}
            self.taints[name] = change["spec"]["taints"]
            self.version += 1
        return 200, {"metadata": {"resourceVersion": str(self.version)}, "spec": {"taints": self.taints[name]}}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    self_signed(folder / "key.pem", folder / "ca.pem", "IP:127.0.0.1")
    return folder


@pytest.fixture
def api(certificate: Path, tmp_path: Path) -> Iterator[Api]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, content = found.answer(self.command, self.path, self.headers.get("Authorization", ""), sent)
            text = json.dumps(content).encode()
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{found.url}/api/v1/nodes/elsewhere")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_PATCH = do_GET

        def log_message(self, *given: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "ca.pem", certificate / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    (tmp_path / "token").write_text("secret-of-the-gate\n")
    found = Api(f"https://127.0.0.1:{server.server_port}", certificate / "ca.pem", tmp_path / "token")
    found.taints["gpu-1"] = [OTHER, OURS]
    yield found
    server.shutdown()


class Time:
    """SIMULATED: a clock that goes on by what is slept, and who does something at each pause."""

    def __init__(self, at_each_pause: Callable[[int], None] = lambda pause: None) -> None:
        self.now, self.pauses, self.at_each_pause = 0.0, 0, at_each_pause

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1
        self.at_each_pause(self.pauses)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "report.json"
    path.write_text('{"exit_code": 0}')
    return path


def ended(api: Api, report: Path, time: Time) -> tuple[int, list[str]]:
    said: list[str] = []
    status = gate.waited(api.config, report, lambda: ("gpu-1",), said.append, time.clock, time.sleep)
    return status, said


def test_the_taint_goes_once_the_pull_was_good_and_every_other_one_stays(api: Api, report: Path) -> None:
    assert ended(api, report, Time()) == (0, [f"gpu-1: taint {TAINT} taken off"])
    assert api.taints["gpu-1"] == [OTHER]
    assert ended(api, report, Time()) == (0, [f"gpu-1: no taint {TAINT}"])
    assert [each.partition(" ")[0] for each in api.asked] == ["GET", "PATCH", "GET"]


@pytest.mark.parametrize("text", ['{"exit_code": 3}', '{"exit_code": 2}', "{}", "[]", "", '{"exit_code": null}', None])
def test_the_taint_stays_where_no_pull_was_good_and_nobody_is_asked(api: Api, report: Path, text: str | None) -> None:
    report.unlink() if text is None else report.write_text(text)
    assert ended(api, report, Time())[0] == 0
    assert api.asked == [] and OURS in api.taints["gpu-1"]


@pytest.mark.parametrize(("exit_code", "left"), [(0, [OTHER]), (2, [OTHER, OURS])])
def test_it_waits_for_the_node_to_join_and_reads_the_report_again(
    api: Api, report: Path, exit_code: int, left: list[dict[str, str]]
) -> None:
    taints = api.taints.pop("gpu-1")

    def joins(pause: int) -> None:
        if pause == 3:
            api.taints["gpu-1"] = taints
            report.write_text(f'{{"exit_code": {exit_code}}}')

    status, said = ended(api, report, Time(joins))
    assert (status, api.taints["gpu-1"]) == (0, left)
    # The same reason is told once.
    assert len(said) == 2 and unnamed(said[0], "404") == []


def test_a_taint_that_somebody_sets_meanwhile_is_not_lost(api: Api, report: Path) -> None:
    pressure = {"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}

    def somebody() -> None:
        api.between = lambda: None
        api.taints["gpu-1"].append(pressure)
        api.version += 1

    api.between = somebody
    status, said = ended(api, report, Time())
    assert status == 0 and api.taints["gpu-1"] == [OTHER, pressure]
    assert unnamed(said[0], "409") == []


def test_it_gives_up_after_an_hour_so_that_the_unit_tells_it(
    api: Api, report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "PAUSE", 600)
    api.taints.clear()
    time = Time()
    assert ended(api, report, time)[0] == 1 and gate.PATIENCE < time.now < gate.PATIENCE + 3 * gate.PAUSE


def points_elsewhere(api: Api) -> None:
    api.taints["elsewhere"] = [OURS]
    api.answers = 302


@pytest.mark.parametrize(
    ("lay", "named"),
    [
        (lambda api: api.token.unlink(), "No such file"),
        (lambda api: api.token.write_bytes(b"secret-of-the-gate\xff"), "token"),
        (lambda api: api.token.write_text("secret-of-the-gate\nX-Other: 1"), "token"),
        (lambda api: api.token.write_text("secret-of-another"), "401"),
        (lambda api: setattr(api, "ca", api.token.with_name("none.pem")), "No such file"),
        (lambda api: setattr(api, "answers", 403), "403"),
        (points_elsewhere, "302"),
    ],
)
def test_what_keeps_it_from_asking_is_told_without_the_token(
    api: Api, lay: Callable[[Api], object], named: str
) -> None:
    lay(api)
    with pytest.raises(Later) as caught:
        gate.opened(api.config, "gpu-1")
    assert unnamed(str(caught.value), named) == [] and "secret" not in str(caught.value)
    assert OURS in api.taints["gpu-1"] and not any("elsewhere" in each for each in api.asked)


def test_a_server_whose_certificate_is_not_the_cluster_s_gets_no_token(api: Api, tmp_path: Path) -> None:
    self_signed(tmp_path / "other.key", tmp_path / "other.pem", "IP:127.0.0.1")
    with pytest.raises(Later):
        gate.opened(Gate(api.url, str(tmp_path / "other.pem"), str(api.token)), "gpu-1")
    assert api.asked == []


def test_a_machine_s_own_names_are_none_of_every_machine() -> None:
    assert all("localhost" not in name for name in gate.own_names())


def test_a_node_that_the_cluster_has_by_the_machine_s_whole_name_is_found(api: Api, report: Path) -> None:
    names, said, taints = ("gpu-1", "gpu-1.example"), list[str](), api.taints.pop("gpu-1")
    # It joins meanwhile; until then the first name is the one that is told.
    time = Time(lambda pause: api.taints.update({"gpu-1.example": taints}) if pause == 2 else None)
    assert gate.waited(api.config, report, lambda: names, said.append, time.clock, time.sleep) == 0
    assert "/gpu-1 " in said[0] and unnamed(said[0], "404") == [] and said[-1].startswith("gpu-1: ")
    assert (api.taints, time.pauses) == ({"gpu-1.example": [OTHER]}, 2)
    # Whatever else the first one is answered with, nobody asks for another node.
    api.answers = 403
    with pytest.raises(Later, match="403"):
        gate.opened_as(api.config, names)
    assert api.asked[-1].endswith("/gpu-1")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[]", "null", '{"metadata": {}}', '{"metadata": {"resourceVersion": "1"}}']
)
def test_an_answer_that_is_no_node_is_looked_at_again_later(
    api: Api, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr("http.client.HTTPResponse.read", lambda answer, most: text.encode())
    with pytest.raises(Later):
        gate.opened(api.config, "gpu-1")


@pytest.mark.parametrize("part", [b"HTTP/1.1 100 Continue\r\n\r\n", b"X", b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"])
def test_an_answer_has_its_seconds_as_a_whole(
    api: Api, certificate: Path, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    monkeypatch.setattr(gate, "SECONDS", 0.4)
    asking: list[threading.Thread] = []
    by_thread = gate._asked

    def watched(*given: Any) -> Any:
        asking.append(threading.current_thread())
        return by_thread(*given)

    monkeypatch.setattr(gate, "_asked", watched)
    with dripping(certificate / "ca.pem", certificate / "key.pem", b"", part) as port:
        began = monotonic()
        with pytest.raises(Later):
            gate.opened(replace(api.config, server=f"https://127.0.0.1:{port}"), "gpu-1")
        assert monotonic() - began < 5
        asking[0].join(5)
        assert not asking[0].is_alive()


@pytest.mark.parametrize("text", [None, "", "[" * 100_000, '{"server": 5}', "\0"])
def test_a_damaged_configuration_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    monkeypatch.setattr(gate, "CONFIG", tmp_path / "gate.json")
    if text is not None:
        gate.CONFIG.write_text(text)
    assert gate.main() == 1
    assert unnamed(capsys.readouterr().out, gate.CONFIG, "gpunode agent install") == []
