"""What a node does with a bundle: real ssh-keygen, a real HTTPS server of this machine; gpunode's run is SIMULATED."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpunode.agent import pull
from gpunode.agent.bundle import Bundle, Program
from gpunode.agent.pull import BUNDLE, Config, Places, Refused
from gpunode.agent.signing import SigningError, signature, signers
from tests.support.certificate import self_signed

pytestmark = [
    pytest.mark.tier2,
    pytest.mark.simulated,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen"),
]

NOW = datetime(2026, 11, 26, 12, 0, 0, tzinfo=UTC)
HERE = Program("0" * 64, f"{sys.version_info[0]}.{sys.version_info[1]}", "x86_64")
WELL = {"exit_code": 0, "hosts": {"@local": {"class": "ok", "summary": None, "findings": [
    {"code": "driver.other", "component": "driver", "class": "ok", "what": "branch", "actual": "580", "desired": "580",
     "cause": None, "remedy": None, "source": None, "disruption": None, "since": None}]}}}  # fmt: skip


@dataclass
class Site:
    """Hold a folder with bundles, its key, and a node that pulls from it."""

    folder: Path
    key: Path
    places: Places
    config: Config
    ran: list[dict[str, Any]]
    ends: dict[str, Any]

    def put(self, key: Path | None = None, host: str = "gpu-1", **changed: Any) -> bytes:
        """Sign a bundle, put it where gpu-1 fetches, and return its text."""
        bundle = Bundle(host, 7, NOW, NOW + timedelta(days=1), "0.1.0", HERE, {"driver": {"branch": "580"}})
        text = replace(bundle, **changed).text().encode()
        self.lay(signature(text, key or self.key) + text)
        return text

    def lay(self, signed: bytes) -> None:
        place = self.folder / "gpu-1" / BUNDLE
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(signed)

    def pull(self, later: timedelta = timedelta(0)) -> dict[str, Any]:
        return pull.pull(self.config, self.places, (NOW + later).timestamp())

    def files(self) -> dict[str, bytes]:
        """Return everything on the node but the report and the metric, which tell of a refusal."""
        told = {self.places.report, self.folder / "metric" / "gpunode_agent.prom"}
        root = self.places.state.parent
        return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path not in told}


def made(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("keys")
    return made(folder / "ours"), made(folder / "another")


@pytest.fixture
def site(tmp_path: Path, keys: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Site:
    node, folder = tmp_path / "node", tmp_path / "bundles"
    (node / "programs" / HERE.sha256).mkdir(parents=True)
    (tmp_path / "bundles" / "metric").mkdir(parents=True)
    places = Places(node / "agent.json", node / "signers", node / "agent", node / "agent.lock", node / "programs")
    places.signers.write_text(signers(keys[0].with_suffix(".pub").read_text()))
    config = Config(folder.as_uri(), "gpu-1", textfile=str(folder / "metric"))
    found = Site(folder, keys[0], places, config, [], WELL)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    def carried_out(places: Places, folder: Path, desired: Any, last: Any) -> dict[str, Any]:
        found.ran.append({"settings": desired["settings"], "whole": bool(last.get("whole"))})
        return found.ends

    monkeypatch.setattr(pull, "carried_out", carried_out)
    return found


def code(told: dict[str, Any]) -> str:
    ((_, host),) = told["hosts"].items()
    return next((each["code"] for each in host["findings"] if each["component"] == "agent"), "")


def test_a_bundle_is_carried_out_and_reported(site: Site) -> None:
    text = site.put()
    told = site.pull()
    assert site.ran == [{"settings": {"driver": {"branch": "580"}}, "whole": False}]
    assert (told["exit_code"], told["agent"]["number"], told["agent"]["last_success"]) == (0, 7, "2026-11-26T12:00:00Z")
    assert told["agent"]["digest"] == hashlib.sha256(text).hexdigest()
    assert told["hosts"]["gpu-1"]["findings"] == WELL["hosts"]["@local"]["findings"]  # type: ignore[index]
    assert json.loads(site.places.report.read_text()) == told
    metric = (site.folder / "metric" / "gpunode_agent.prom").read_text()
    assert f"gpunode_agent_last_success_timestamp_seconds {NOW.timestamp():.0f}\n" in metric
    assert 'gpunode_agent_refused{code=""} 0\n' in metric
    # The same bundle again: asked whether it is still so.
    site.pull(timedelta(hours=1))
    assert [each["whole"] for each in site.ran] == [False, True]


def altered(site: Site, keys: tuple[Path, Path]) -> None:
    signed = signature(text := site.put(), keys[0]) + text.replace(b"580", b"570")
    site.lay(signed)


def by_another_key(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(key=keys[1])


def for_another_host(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(host="gpu-2")


def expired(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(number=8, expires=NOW)


def older(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(number=6)


def with_a_number_that_was_taken(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(settings={"driver": {"branch": "570"}})


def unsigned(site: Site, keys: tuple[Path, Path]) -> None:
    site.lay(site.put())


def empty(site: Site, keys: tuple[Path, Path]) -> None:
    site.lay(b"")


def gone(site: Site, keys: tuple[Path, Path]) -> None:
    (site.folder / "gpu-1" / BUNDLE).unlink()


def for_another_python(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(number=8, program=replace(HERE, python="3.9"))


def with_a_program_that_is_not_there(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(number=8, program=replace(HERE, sha256="1" * 64))


def with_another_program(site: Site, keys: tuple[Path, Path]) -> None:
    site.put(number=8, program=replace(HERE, sha256="1" * 64))
    (site.folder / "programs").mkdir()
    (site.folder / "programs" / f"{'1' * 64}.tar.gz").write_bytes(b"another one")


def much_too_large(site: Site, keys: tuple[Path, Path]) -> None:
    site.lay(b"x" * (pull.MOST + 1))


REFUSED: list[tuple[Callable[[Site, tuple[Path, Path]], None], str]] = [
    (altered, "agent.bundle-altered"), (by_another_key, "agent.bundle-signer"), (for_another_host, "agent.bundle-host"),
    (expired, "agent.bundle-expired"), (older, "agent.bundle-older"),
    (with_a_number_that_was_taken, "agent.bundle-older"), (unsigned, "agent.bundle-altered"),
    (empty, "agent.bundle-altered"), (gone, "agent.not-fetched"), (for_another_python, "agent.other-python"),
    (with_a_program_that_is_not_there, "agent.not-fetched"), (with_another_program, "agent.bundle-altered"),
    (much_too_large, "agent.not-fetched"),
]  # fmt: skip


@pytest.mark.parametrize(("lay", "said"), REFUSED, ids=[lay.__name__ for lay, _ in REFUSED])
def test_what_is_not_a_bundle_for_this_node_now_is_refused_and_changes_nothing(
    site: Site, keys: tuple[Path, Path], lay: Callable[[Site, tuple[Path, Path]], None], said: str
) -> None:
    site.put()
    site.pull()
    before = site.files()
    lay(site, keys)
    told = site.pull(timedelta(hours=1))
    assert code(told) == said and told["exit_code"] == 3
    assert len(site.ran) == 1 and site.files() == before
    # The last success stays known, and so does the bundle that was taken last.
    assert (told["agent"]["last_success"], told["agent"]["number"]) == ("2026-11-26T12:00:00Z", 7)
    finding = next(each for each in told["hosts"]["gpu-1"]["findings"] if each["component"] == "agent")
    assert finding["cause"] and finding["remedy"]
    assert f'gpunode_agent_refused{{code="{said}"}} 1\n' in (site.folder / "metric" / "gpunode_agent.prom").read_text()


def test_a_newer_bundle_is_taken_and_then_the_older_one_is_not(site: Site) -> None:
    site.put(number=7)
    site.pull()
    site.put(number=8, settings={"driver": {"branch": "590"}})
    assert site.pull()["agent"]["number"] == 8
    site.put(number=7)
    assert code(site.pull()) == "agent.bundle-older"
    assert [each["settings"]["driver"]["branch"] for each in site.ran] == ["580", "590"]


def test_a_run_that_failed_is_told_and_is_no_success(site: Site) -> None:
    site.put()
    site.ends = {"exit_code": 1, "error": "the disk is full", "code": "file.unreadable"}
    told = site.pull()
    assert (told["exit_code"], told["agent"]["last_success"], code(told)) == (1, None, "file.unreadable")
    site.ends = {**WELL, "exit_code": 2, "left_alone": {"@local": "it was not verified"}, "hosts": {}}
    told = site.pull()
    assert (told["exit_code"], code(told)) == (2, "agent.run-broken")
    # A bundle is not known to be brought about before it was.
    assert [each["whole"] for each in site.ran] == [False, False]
    site.ends = WELL
    assert site.pull()["exit_code"] == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_byte_of_a_bundle_can_be_altered(site: Site, data: st.DataObject) -> None:
    text = site.put()
    signed = signature(text, site.key) + text
    at = data.draw(st.integers(len(signed) - len(text), len(signed) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda each: each != signed[at]))
    with pytest.raises(Refused, match="not as it was signed"):
        pull.verified(signed[:at] + bytes([byte]) + signed[at + 1 :], site.places.signers)
    cut = data.draw(st.integers(0, len(signed) - 1))
    with pytest.raises(Refused):
        pull.verified(signed[:cut], site.places.signers)


def test_a_signature_for_something_else_is_none_for_a_bundle(site: Site, tmp_path: Path) -> None:
    text = site.put()
    (tmp_path / "text").write_bytes(text)
    subprocess.run(
        ["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(site.key), str(tmp_path / "text")], check=True
    )
    site.lay((tmp_path / "text.sig").read_bytes() + text)
    assert code(site.pull()) == "agent.bundle-altered"


def test_two_pulls_at_once_wait_for_each_other(site: Site) -> None:
    site.put()
    done = threading.Event()
    with pull.turn(site.places):

        def pulls() -> None:
            site.pull()
            done.set()

        other = threading.Thread(target=pulls)
        other.start()
        assert not done.wait(1.5) and site.ran == []
    other.join(30)
    assert len(site.ran) == 1


def test_what_was_judged_before_a_push_is_judged_anew_behind_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put(expires=NOW + timedelta(seconds=1))
    monkeypatch.setattr("time.sleep", lambda seconds: site.put(number=8, settings={"driver": {"branch": "590"}}))
    tries = iter([BlockingIOError, None])

    def flock(descriptor: int, operation: int) -> None:
        if (error := next(tries)) is not None:
            raise error

    monkeypatch.setattr("fcntl.flock", flock)
    assert site.pull()["agent"]["number"] == 8
    assert [each["settings"]["driver"]["branch"] for each in site.ran] == ["590"]


def test_whatever_breaks_is_reported_and_no_earlier_report_passes_for_this_one_s(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put()
    assert site.pull()["exit_code"] == 0

    def full(*given: Any) -> Path:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(pull, "program", full)
        told = site.pull()
    assert (told["exit_code"], code(told)) == (3, "agent.run-broken") and "No space left" in str(told)
    assert json.loads(site.places.report.read_text()) == told
    # A record that is cut off: nobody knows which bundle is older then.
    (site.places.private / "state.json").write_text('{"number": 7')
    assert code(site.pull()) == "agent.run-broken" and len(site.ran) == 1


def test_a_report_that_cannot_be_written_leaves_none_of_an_earlier_pull(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.put()
    site.pull()
    own = pull._replace

    def replaced(path: Path, text: bytes, mode: int) -> None:
        if path == site.places.report:
            raise OSError(28, "No space left on device")
        own(path, text, mode)

    monkeypatch.setattr(pull, "_replace", replaced)
    assert site.pull()["exit_code"] == 1 and not site.places.report.exists()
    assert "report.json was not written: No space left on device" in capsys.readouterr().err
    assert "gpunode_agent_exit_code 1\n" in (site.folder / "metric" / "gpunode_agent.prom").read_text()


def test_pyinfra_is_run_by_the_python_that_pulls_and_earlier_runs_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, places = tmp_path / "program", Places(state=tmp_path / "agent")
    own = folder / "site-packages" / "gpunode" / "repository"
    for path in (*(own / name for name in pull.OWN), folder / "bin" / "pyinfra"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/usr/bin/env no-such-python\nimport sys\nprint(sys.executable)\n")
    earlier = places.private / "run" / ".apply" / "node-1f2e"
    (earlier / "20261126T120000Z").mkdir(parents=True)
    (earlier / "run.lock").touch()
    (places.private / "state.json").write_text('{"number": 7, "digest": "1", "whole": true}')
    found: list[tuple[str, str, bool]] = []

    class Program:
        """Stand in for gpunode: it starts pyinfra as that does."""

        stdout = b"{}"

        def __init__(self, words: list[str], cwd: Path, env: dict[str, str], **more: Any) -> None:
            which = shutil.which("pyinfra", path=env["PATH"])
            assert which is not None
            with subprocess.Popen([which], stdout=subprocess.PIPE, text=True) as pyinfra:
                by = pyinfra.communicate()[0].strip()
            whole = json.loads((places.private / "state.json").read_text())["whole"]
            found.append((next(word for word in words if word in ("drift", "apply")), by, whole))

    monkeypatch.setattr("subprocess.run", Program)
    pull.carried_out(places, folder, {"settings": {}, "digest": "1"}, {"digest": "1", "whole": True})
    # Asked whether it is still so, and then brought about: by then it is not known to be, for a boot may end that.
    assert found == [("drift", sys.executable, True), ("apply", sys.executable, False)]
    assert sorted(path.name for path in earlier.iterdir()) == ["run.lock"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("https")
    self_signed(folder / "key", folder / "cert", "DNS:localhost")
    return folder


class _Server(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path.startswith("/cut/"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"ff\r\nx")
            return
        if self.path.startswith("/garbled/"):
            self.wfile.write(b"no answer of HTTP\r\n\r\n")
            return
        if self.path.startswith("/away/"):
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}{self.path[5:]}")  # type: ignore[attr-defined]
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, *given: Any) -> None:
        pass


@pytest.fixture
def https(site: Site, certificate: Path) -> Iterator[str]:
    """Return the address of a server that has the site's folder."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Server, directory=str(site.folder)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_bundles_come_by_https_from_a_server_with_a_good_certificate(site: Site, certificate: Path, https: str) -> None:
    site.put()
    site.config = replace(site.config, source=https, ca=str(certificate / "cert"))
    assert site.pull()["exit_code"] == 0
    # A server whose certificate nobody vouches for.
    site.config = replace(site.config, ca=None)
    told = site.pull()
    assert code(told) == "agent.not-fetched" and "certificate" in str(told)
    site.config = replace(site.config, source=f"{https}/away", ca=str(certificate / "cert"))
    told = site.pull()
    assert code(told) == "agent.not-fetched" and "not https" in str(told)
    for answer in ("cut", "garbled"):
        site.config = replace(site.config, source=f"{https}/{answer}")
        assert code(site.pull()) == "agent.not-fetched", answer
    site.config = replace(site.config, source=https.replace("https", "http"))
    assert code(site.pull()) == "agent.not-fetched"
    assert len(site.ran) == 1


def test_a_key_with_a_passphrase_asks_nobody_and_says_what_to_do(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "k")], check=True)
    with pytest.raises(SigningError, match="ssh-agent"):
        signature(b"text", tmp_path / "k")
