"""What a node does with a bundle: real ssh-keygen, a real HTTPS server of this machine; gpunode's run is SIMULATED."""

from __future__ import annotations

import functools
import hashlib
import http.server
import io
import json
import os
import shutil
import ssl
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.agent import pull
from gpunode.agent.bundle import Bundle, Program, SigningError, signature, signers
from gpunode.agent.collected import Collected, judged
from gpunode.agent.gate import is_good
from gpunode.agent.pull import BUNDLE, Config, Places, Refused
from gpunode.base.document import AGENT_SCHEMA, REPORT_SCHEMA
from gpunode.base.findings import ExitCode, verdict
from tests.support.certificate import self_signed
from tests.support.messages import unnamed
from tests.support.slow_server import dripping

pytestmark = [
    pytest.mark.tier2,
    pytest.mark.simulated,
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen"),
]

LOCK = Path(__file__).parents[2] / "templates" / "scripts" / "node_lock.sh"
NOW = datetime(2026, 11, 26, 12, 0, 0, tzinfo=UTC)
HERE = Program("0" * 64, f"{sys.version_info[0]}.{sys.version_info[1]}", "x86_64")
GOOD = {
    "code": "driver.other", "component": "driver", "class": "ok", "what": "branch", "actual": "580", "desired": "580",
    "cause": None, "remedy": None, "source": None, "disruption": None, "since": None,
}  # fmt: skip
WELL: dict[str, Any] = {"exit_code": 0, "hosts": {"@local": {"class": "ok", "summary": None, "findings": [GOOD]}}}
OF_590 = {"driver": {"branch": "590"}}


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

    @property
    def metric(self) -> str:
        return (self.folder / "metric" / "gpunode_agent.prom").read_text()

    @property
    def branches(self) -> list[str]:
        return [each["settings"]["driver"]["branch"] for each in self.ran]

    def files(self) -> dict[Path, bytes]:
        """Return everything on the node but the report, which tells of a refusal."""
        found = (path for path in self.places.state.parent.rglob("*") if path.is_file() and path != self.places.report)
        return {path: path.read_bytes() for path in found}


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
    program = node / "programs" / HERE.sha256
    (program / pull.LOCK).parent.mkdir(parents=True)
    shutil.copy(LOCK, program / pull.LOCK)
    (program / pull.DIGESTS).write_text(json.dumps(pull._digests(program)))
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
    assert told["hosts"]["gpu-1"]["findings"] == [GOOD]
    assert json.loads(site.places.report.read_text()) == told
    assert f"gpunode_agent_last_success_timestamp_seconds {NOW.timestamp():.0f}\n" in site.metric
    assert 'gpunode_agent_refused{code=""} 0\n' in site.metric
    # The same bundle again: asked whether it is still so.
    site.pull(timedelta(hours=1))
    assert [each["whole"] for each in site.ran] == [False, True]
    # A newer one, and then the older one again.
    site.put(number=8, settings=OF_590)
    assert site.pull()["agent"]["number"] == 8
    site.put()
    assert code(site.pull()) == "agent.bundle-older" and site.branches == ["580", "580", "590"]


def with_another_program(site: Site, key: Path) -> None:
    site.put(number=8, program=OTHER)
    (site.folder / "programs").mkdir()
    (site.folder / "programs" / f"{OTHER.sha256}.tar.gz").write_bytes(b"another one")


def altered(site: Site, key: Path) -> None:
    site.lay(signature(text := site.put(), site.key) + text.replace(b"580", b"570"))


def newer(site: Site, key: Path) -> None:
    text = site.put(number=8).replace(b'"schema": 1', b'"schema": 2')
    site.lay(signature(text, site.key) + text)


OTHER = replace(HERE, sha256="1" * 64)
# How a bundle is laid, with a key that the node does not trust -> the code of its refusal.
REFUSED: dict[str, tuple[Callable[[Site, Path], object], str]] = {
    "altered": (altered, "agent.bundle-altered"),
    "by another key": (lambda site, key: site.put(key), "agent.bundle-signer"),
    "of a newer gpunode": (newer, "agent.newer"),
    "for another host": (lambda site, _: site.put(host="gpu-2"), "agent.bundle-host"),
    "expired": (lambda site, _: site.put(number=8, expires=NOW), "agent.bundle-expired"),
    "older": (lambda site, _: site.put(number=6), "agent.bundle-older"),
    "a number that was taken": (lambda site, _: site.put(settings=OF_590), "agent.bundle-older"),
    "unsigned": (lambda site, _: site.lay(site.put()), "agent.bundle-altered"),
    "empty": (lambda site, _: site.lay(b""), "agent.bundle-altered"),
    "gone": (lambda site, _: (site.folder / "gpu-1" / BUNDLE).unlink(), "agent.not-fetched"),
    "another Python": (lambda site, _: site.put(number=8, program=replace(HERE, python="3.9")), "agent.other-python"),
    "no program": (lambda site, _: site.put(number=8, program=OTHER), "agent.not-fetched"),
    "another program": (with_another_program, "agent.bundle-altered"),
    "too large": (lambda site, _: site.lay(b"x" * (pull.MOST + 1)), "agent.not-fetched"),
}


@pytest.mark.parametrize(("lay", "refusal"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_a_bundle_for_this_node_now_is_refused_and_changes_nothing(
    site: Site, keys: tuple[Path, Path], lay: Callable[[Site, Path], object], refusal: str
) -> None:
    site.put()
    site.pull()
    before = site.files()
    lay(site, keys[1])
    told = site.pull(timedelta(hours=1))
    assert (code(told), told["exit_code"]) == (refusal, 3)
    assert len(site.ran) == 1 and site.files() == before
    # The last success stays known, and so does the bundle that was taken last.
    assert (told["agent"]["last_success"], told["agent"]["number"]) == ("2026-11-26T12:00:00Z", 7)
    finding = next(each for each in told["hosts"]["gpu-1"]["findings"] if each["component"] == "agent")
    assert finding["cause"] and finding["remedy"]
    assert f'gpunode_agent_refused{{code="{refusal}"}} 1\n' in site.metric


def test_state_of_a_newer_agent_is_refused_and_kept(site: Site) -> None:
    site.put()
    site.pull()
    state = site.places.private / "state.json"
    assert json.loads(state.read_text())["schema"] == pull.STATE_SCHEMA
    state.write_text('{"schema": 2, "taken": "in another form"}')
    told = site.pull(timedelta(hours=1))
    assert (code(told), told["exit_code"], len(site.ran)) == ("agent.newer", 3, 1)
    assert state.read_text() == '{"schema": 2, "taken": "in another form"}'
    # An agent that kept no version left the first one.
    state.write_text(json.dumps({"number": 8, "digest": "0" * 64}))
    assert code(site.pull(timedelta(hours=1))) == "agent.bundle-older"


def test_a_report_carries_its_version_and_that_of_the_document_in_it(site: Site) -> None:
    site.put()
    told = site.pull()
    assert (told["schema"], told["document_schema"]) == (AGENT_SCHEMA, 1)
    site.ends = {**WELL, "schema": REPORT_SCHEMA}
    assert site.pull()["document_schema"] == REPORT_SCHEMA
    # Nothing was run: the agent's own finding is in the form of today's documents.
    site.put(number=6)
    assert site.pull()["document_schema"] == REPORT_SCHEMA


def test_a_run_that_failed_is_told_and_is_no_success(site: Site) -> None:
    site.put()
    failed = {"exit_code": 1, "error": "the disk is full", "code": "file.unreadable"}
    site.ends = failed
    told = site.pull()
    assert (told["exit_code"], told["agent"]["last_success"], code(told)) == (1, None, "file.unreadable")
    site.ends = {**WELL, "exit_code": 2, "left_alone": {"@local": "not verified"}, "hosts": {}}
    told = site.pull()
    assert (told["exit_code"], code(told)) == (2, "agent.run-broken")
    # A bundle is not known to be brought about before it was.
    assert [each["whole"] for each in site.ran] == [False, False]
    for ends, whole in ((WELL, True), (failed, False)):
        site.ends = ends
        assert site.pull()["exit_code"] == ends["exit_code"]
        assert json.loads((site.places.private / "state.json").read_text())["whole"] is whole
        site.put(number=8, settings=OF_590)


# What gpunode printed of a node that is as desired -> the codes of the agent's findings, and the exit code.
BROKEN = {"error": "pyinfra exited 1", "code": "run.broken-off"}
WORSE: dict[str, tuple[dict[str, Any], list[str], int]] = {
    "a run that was broken off": ({**WELL, "exit_code": 1, "errors": [BROKEN]}, ["run.broken-off"], 1),
    "nothing judged": ({"exit_code": 1, "errors": [BROKEN], "hosts": {}, "left_alone": {}}, ["run.broken-off"], 1),
    "its cluster": ({**WELL, "exit_code": 2, "errors": [], "cluster": {"class": "drift"}}, ["agent.run-broken"], 2),
    "no reason": ({**WELL, "exit_code": 1}, ["agent.run-broken"], 1),
}


@pytest.mark.parametrize(("ends", "codes", "status"), WORSE.values(), ids=WORSE)
def test_an_exit_code_is_kept_and_has_a_finding(
    site: Site, ends: dict[str, Any], codes: list[str], status: int
) -> None:
    site.put()
    site.ends = ends
    told = site.pull()
    host = told["hosts"]["gpu-1"]
    assert (told["exit_code"], host["class"], told["agent"]["last_success"]) == (status, "error", None)
    assert [each["code"] for each in host["findings"] if each["component"] == "agent"] == codes
    assert not is_good(site.places.report)
    # A controller that collects it judges the same.
    report = judged("gpu-1", Collected(True, told), NOW, timedelta(days=1))
    assert verdict(report.findings) is ExitCode.ERROR and "agent.no-success" in [each.code for each in report.findings]


def test_no_byte_of_a_bundle_can_be_altered(site: Site) -> None:
    text = site.put()
    signed = (site.folder / "gpu-1" / BUNDLE).read_bytes()

    @settings(max_examples=20, deadline=None)
    @given(st.integers(len(signed) - len(text), len(signed) - 1), st.integers(1, 255), st.integers(0, len(signed) - 1))
    def check(at: int, change: int, cut: int) -> None:
        for broken in (signed[:at] + bytes([signed[at] ^ change]) + signed[at + 1 :], signed[:cut]):
            with pytest.raises(Refused) as refused:
                pull.verified(broken, site.places.signers)
            assert refused.value.code == "agent.bundle-altered"

    check()


def test_a_signature_for_something_else_is_none_for_a_bundle(site: Site, tmp_path: Path) -> None:
    text = site.put()
    (file := tmp_path / "text").write_bytes(text)
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", site.key, file], check=True)
    site.lay((tmp_path / "text.sig").read_bytes() + text)
    assert code(site.pull()) == "agent.bundle-altered"


def test_two_pulls_at_once_wait_for_each_other(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put()
    with ExitStack() as held:
        with monkeypatch.context() as another:
            another.setattr("os.getpid", lambda: 1)
            held.enter_context(pull.turn(site.places, LOCK))
        other = threading.Thread(target=site.pull)
        other.start()
        other.join(1.5)
        assert other.is_alive() and site.ran == []
    other.join(30)
    assert len(site.ran) == 1


def test_what_was_judged_before_a_push_is_judged_anew_behind_it(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.put(expires=NOW + timedelta(seconds=1))

    @contextmanager
    def waited(places: Places, script: Path) -> Iterator[bool]:
        site.put(number=8, settings=OF_590)
        yield True

    monkeypatch.setattr(pull, "turn", waited)
    assert site.pull()["agent"]["number"] == 8 and site.branches == ["590"]


def raises(error: Exception) -> Callable[..., None]:
    def broken(*given: Any) -> None:
        raise error

    return broken


def test_whatever_breaks_is_reported_and_no_earlier_report_passes_for_this_one_s(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.put()
    assert site.pull()["exit_code"] == 0

    with monkeypatch.context() as broken:
        broken.setattr(pull, "program", raises(OSError(28, "No space left on device")))
        told = site.pull()
    assert (told["exit_code"], code(told)) == (3, "agent.run-broken") and "No space left" in str(told)
    assert json.loads(site.places.report.read_text()) == told


DAMAGED = [
    "", "null", "[]", '{"number": 7', '{"number": "7", "digest": "0"}', '{"number": 7}', '{"digest": "0"}',
    "[" * 100_000, '{"number": 7, "digest": 5}', '{"last_success": "yesterday"}', '{"last_success": 5}', "\ud800", "\0",
    '{"withdrawn": 7}', '{"withdrawn": ["7"]}', None,
]  # fmt: skip


def damage(path: Path, text: str | None) -> None:
    """Write a text over a file; None: have a folder in its place."""
    path.unlink(missing_ok=True)
    if text is None:
        path.mkdir()
    else:
        path.write_bytes(text.encode("utf-8", "surrogatepass"))


KEPT = {"number": 8, "digest": "0" * 64, "withdrawn": [9]}


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_state_is_replaced_by_its_copy_and_two_are_refused_and_kept(site: Site, text: str | None) -> None:
    pull._keep(site.places, KEPT)
    whole = site.places.states[0].read_bytes()
    for path in site.places.states:
        damage(path, text)
        assert KEPT.items() <= pull._state(site.places).items()
        assert path.read_bytes() == whole
    for path in site.places.states:
        damage(path, text)
    with pytest.raises(Refused) as refused:
        pull._state(site.places)
    assert refused.value.code == "agent.run-broken"
    assert [path.is_dir() for path in site.places.states] == [text is None] * 2


def test_a_pull_with_damaged_states_takes_no_bundle_until_they_are_removed(site: Site) -> None:
    site.put()
    site.pull()
    # They say which bundles are older: without them an older one would be carried out.
    for path in site.places.states:
        damage(path, "")
    told = site.pull(timedelta(hours=1))
    assert (code(told), told["exit_code"], len(site.ran)) == ("agent.run-broken", 3, 1)
    (found,) = told["hosts"]["gpu-1"]["findings"]
    assert unnamed(found["cause"], *site.places.states) == unnamed(found["remedy"], site.places.private) == []
    # As the remedy says.
    shutil.rmtree(site.places.private)
    assert site.pull(timedelta(hours=1))["exit_code"] == 0


def test_the_newer_one_of_two_states_counts(site: Site) -> None:
    pull._keep(site.places, KEPT)
    older = site.places.states[1].read_bytes()
    pull._keep(site.places, {**KEPT, "number": 9})
    # As a power cut between the two leaves them.
    site.places.states[1].write_bytes(older)
    assert pull._state(site.places)["number"] == 9


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"source": "https://x"}', '{"source": 5, "host": 7}', None])
def test_a_damaged_configuration_is_replaced_or_named(
    site: Site, text: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pull, "Places", lambda: site.places)
    damage(site.places.config, text)
    # Before the first pull nothing is known of it.
    assert pull.main([]) == 3
    assert unnamed(capsys.readouterr().out, site.places.config, "gpunode agent install", "[agent.run-broken]") == []
    assert site.ran == [] and json.loads(site.places.report.read_text())["exit_code"] == 3
    site.put(expires=datetime.now(UTC) + timedelta(days=1))
    site.pull()
    assert pull.main([]) == 0 and len(site.ran) == 2
    assert Config(**json.loads(site.places.config.read_text())) == site.config


@pytest.mark.parametrize(
    "ends", [{"hosts": [1]}, {"hosts": {"@local": {"class": "ok"}}}, {**WELL, "exit_code": "x"}, []]
)
def test_a_document_that_is_none_is_reported_and_the_old_report_goes(site: Site, ends: Any) -> None:
    site.put()
    site.pull()
    site.ends = ends
    told = site.pull(timedelta(hours=1))
    assert (code(told), told["exit_code"]) == ("agent.run-broken", 3)
    assert json.loads(site.places.report.read_text()) == told and "gpunode_agent_exit_code 3\n" in site.metric


def test_a_large_report_keeps_its_exit_code_and_loses_its_findings(site: Site) -> None:
    site.put()
    many = [GOOD | {"cause": "x" * 1000}] * 2000
    site.ends = {"exit_code": 0, "hosts": {"@local": {"class": "ok", "summary": None, "findings": many}}}
    told = site.pull()
    assert (code(told), told["exit_code"]) == ("agent.run-broken", 1)
    assert site.places.report.stat().st_size < pull.MOST and not is_good(site.places.report)


def archive(*files: tuple[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as members:
        for name, text in files:
            (member := tarfile.TarInfo(name)).size = len(text)
            members.addfile(member, io.BytesIO(text))
    return packed.getvalue()


def shorten(folder: Path) -> None:
    (folder / "site-packages" / "a.py").write_bytes(b"")


def add(folder: Path) -> None:
    (folder / "site-packages" / "json.py").write_text("evil = True\n")


def replace_by_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("no folder")


@pytest.mark.parametrize(
    "harm",
    [shorten, add, replace_by_a_file, shutil.rmtree, lambda folder: (folder / pull.DIGESTS).unlink(),
     lambda folder: (folder / pull.DIGESTS).write_text("[" * 100_000), lambda folder: replace_by_a_file(folder.parent)],
)  # fmt: skip
def test_a_damaged_program_is_fetched_again(site: Site, harm: Callable[[Path], object]) -> None:
    packed = archive(("site-packages/a.py", b"a = 1\n"), ("bin/pyinfra", b"#!"), (pull.LOCK, LOCK.read_bytes()))
    desired = replace(HERE, sha256=hashlib.sha256(packed).hexdigest())
    place = site.folder / "programs" / f"{desired.sha256}.tar.gz"
    place.parent.mkdir()
    place.write_bytes(packed)
    site.put(program=desired)
    assert site.pull()["exit_code"] == 0
    folder = site.places.programs / desired.sha256
    (folder / "site-packages" / "__pycache__").mkdir()
    (folder / "site-packages" / "__pycache__" / "a.pyc").touch()
    whole = {path: path.read_bytes() for path in folder.rglob("*") if path.suffix != ".pyc" and path.is_file()}
    # A whole one is not fetched again.
    place.rename(place.with_suffix(".away"))
    assert site.pull()["exit_code"] == 0
    harm(folder)
    assert code(site.pull()) == "agent.not-fetched"
    place.with_suffix(".away").rename(place)
    assert site.pull()["exit_code"] == 0
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == whole
    assert [each.name for each in site.places.programs.iterdir()] == [desired.sha256]


HUGE = 9 * 10**18


def test_a_withdrawn_number_is_taken_back_for_good(site: Site) -> None:
    site.put(number=HUGE, settings=OF_590)
    wrong = (site.folder / "gpu-1" / BUNDLE).read_bytes()
    site.pull()
    site.put(number=8)
    assert code(site.pull()) == "agent.bundle-older"
    site.put(number=8, withdrawn=(HUGE - 1,))
    assert code(site.pull()) == "agent.bundle-older"
    site.put(number=8, withdrawn=(HUGE,))
    corrected = (site.folder / "gpu-1" / BUNDLE).read_bytes()
    assert site.pull()["agent"]["number"] == 8
    # Whoever serves bundles still has the old ones.
    site.lay(wrong)
    assert code(site.pull()) == "agent.bundle-older"
    site.put(number=9)
    assert site.pull()["agent"]["number"] == 9
    for signed in (wrong, corrected):
        site.lay(signed)
        assert code(site.pull()) == "agent.bundle-older"
    assert site.branches == ["590", "580", "580"]


def test_a_node_that_missed_a_withdrawn_number_does_not_take_it_later(site: Site) -> None:
    site.put(number=HUGE)
    wrong = (site.folder / "gpu-1" / BUNDLE).read_bytes()
    site.put(number=8, withdrawn=(HUGE,))
    site.pull()
    site.lay(wrong)
    assert code(site.pull()) == "agent.bundle-older" and len(site.ran) == 1


@pytest.mark.parametrize(
    ("first", "part"),
    [(b"", b"H"), (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b"x"), (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
     (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n")],
    ids=["header", "body", "continue", "chunks"],
)  # fmt: skip
def test_a_slow_server_is_left_after_the_seconds_of_an_answer_as_a_whole(
    site: Site, certificate: Path, monkeypatch: pytest.MonkeyPatch, first: bytes, part: bytes
) -> None:
    site.put()
    site.pull()
    monkeypatch.setattr(pull, "SECONDS", 0.4)
    with dripping(certificate / "cert", certificate / "key", first, part) as port:
        site.config = replace(site.config, source=f"https://localhost:{port}", ca=str(certificate / "cert"))
        began = time.monotonic()
        told = site.pull(timedelta(hours=1))
        assert time.monotonic() - began < 5
    assert (code(told), told["exit_code"]) == ("agent.not-fetched", 3)
    assert json.loads(site.places.report.read_text()) == told


_FETCH = """\
import sys
from gpunode.agent import pull
pull.SECONDS = 0.2
try:
    pull.fetched(pull.Config(sys.argv[1], "gpu-1"), sys.argv[2], 100)
except pull.Refused as refused:
    sys.exit(refused.code)
"""


def test_a_folder_that_does_not_answer_is_left_too(tmp_path: Path) -> None:
    # As the file of a mount whose server is gone. In a process of its own, as on a node: where gevent has replaced
    # Python's threads, opening the pipe stops them all.
    os.mkfifo(tmp_path / BUNDLE)
    words = [sys.executable, "-c", _FETCH, tmp_path.as_uri(), BUNDLE]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, cwd=LOCK.parents[2])
    assert (done.returncode, done.stderr.strip()) == (1, "agent.not-fetched")


@pytest.mark.parametrize("text", ["", "\0\0", "# nothing\n"])
def test_damaged_keys_are_named_as_that(site: Site, text: str) -> None:
    site.put()
    site.places.signers.write_text(text)
    told = site.pull()
    assert code(told) == "agent.run-broken" and unnamed(str(told), site.places.signers) == []


def test_a_run_that_does_not_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(words: list[str], timeout: float, **more: Any) -> None:
        # The unit's own limit would end the pull without a report.
        assert 60 <= timeout < 3 * 3600
        raise subprocess.TimeoutExpired(words, timeout)

    monkeypatch.setattr("subprocess.run", endless)
    with pytest.raises(Refused) as refused:
        pull._gpunode(tmp_path / "program", tmp_path / "work", "apply")
    assert refused.value.code == "agent.run-broken"


def test_a_report_that_cannot_be_written_leaves_none_of_an_earlier_pull(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.put()
    site.pull()
    own = pull._replace

    full = raises(OSError(28, "No space left on device"))
    monkeypatch.setattr(
        pull, "_replace", lambda path, *more: (full if path == site.places.report else own)(path, *more)
    )
    assert site.pull()["exit_code"] == 1 and not site.places.report.exists()
    assert unnamed(capsys.readouterr().err, "report.json") == []
    assert "gpunode_agent_exit_code 1\n" in site.metric


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
    # Another bundle than the one that was brought about.
    found.clear()
    pull.carried_out(places, folder, {"settings": {}, "digest": "2"}, {"digest": "1", "whole": True})
    assert [command for command, *_ in found] == ["apply"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder = tmp_path_factory.mktemp("https")
    self_signed(folder / "key", folder / "cert", "DNS:localhost")
    return folder


class _Server(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        port = self.server.server_port  # type: ignore[attr-defined]
        head = {
            "cut": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nx",
            "garbled": b"no answer of HTTP\r\n\r\n",
            "loop": f"HTTP/1.1 302 Found\r\nLocation: {self.path}\r\n\r\n".encode(),
            "away": f"HTTP/1.1 302 Found\r\nLocation: http://localhost:{port}{self.path[5:]}\r\n\r\n".encode(),
        }.get(self.path.split("/")[1])
        if head:
            self.wfile.write(head)
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
    serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    serving.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_bundles_come_by_https_from_a_server_with_a_good_certificate(site: Site, certificate: Path, https: str) -> None:
    site.put()
    site.config = replace(site.config, source=https, ca=str(certificate / "cert"))
    assert site.pull()["exit_code"] == 0
    assert len(site.ran) == 1
    # No certificate that is trusted, no https, and no whole answer.
    for source, ca, names in (
        (https, None, ["certificate"]),
        (f"{https}/away", site.config.ca, ["https"]),
        (f"{https}/cut", site.config.ca, []),
        (f"{https}/loop", site.config.ca, []),
        (f"{https}/garbled", site.config.ca, []),
        (https.replace("https", "http"), site.config.ca, []),
    ):
        site.config = replace(site.config, source=source, ca=ca)
        told = site.pull()
        assert code(told) == "agent.not-fetched" and unnamed(str(told), *names) == [], source
    assert len(site.ran) == 1


def test_a_key_with_a_passphrase_asks_nobody_and_says_what_to_do(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(tmp_path / "k")], check=True)
    with pytest.raises(SigningError, match="ssh-agent"):
        signature(b"text", tmp_path / "k")
