"""Own files that a hand was at: recorded by a run, read by the one probe, told by drift and verdict, each alone."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.file import File
from gpunode.base.probe_output import checked
from gpunode.components.runtimes.toolkit import state as own_files_of_toolkit
from gpunode.deploys import component
from gpunode.deploys import driver as driver_deploy
from gpunode.facts.families.dnf import DnfRepository
from gpunode.facts.file import File as FileFact
from gpunode.facts.node import Node as NodeFact
from gpunode.facts.packages import AptRepository as AptRepositoryFact
from gpunode.facts.records import Applied as AppliedFact
from gpunode.node.own_files import decide as own_files_decide
from gpunode.node.own_files import driver as own_files_of_driver
from gpunode.node.own_files.holds import TOOLKIT_PREFERENCES as PINS
from gpunode.operations import applied, files, repositories
from gpunode.operations import verify as verdict
from gpunode.operations.own_files import kept
from gpunode.operations.toolkit import TOOLKIT_HOLDS
from gpunode.settings import settings_from
from gpunode.system import applied as record
from gpunode.system.applied import PATH, Applied, OwnFile, PresentFile, parse_applied, record_text
from tests.support.dnf import ASKED as DNF_ASKED
from tests.support.dnf import TRUSTED as DNF_TRUSTED
from tests.support.messages import unnamed
from tests.support.operations import REPOSITORY, TRUSTED
from tests.support.own_files import LEFT, digest
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(("more", "goes"), [({}, True), ({"dcgm": {"enabled": True}}, False), ({"cuda": {}}, False)])
def test_the_driver_s_deploy_takes_no_repository_away_that_another_component_brings_back(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], goes: bool
) -> None:
    asked = settings_from({"driver": {"source": "distribution"}, "cuda": {"enabled": False}, **more})
    distrusted: list[str] = []
    monkeypatch.setattr(driver_deploy, "settings", lambda: asked)
    monkeypatch.setattr(driver_deploy, "node", lambda: GOOD)
    monkeypatch.setattr(driver_deploy, "needed", lambda *_, **__: None)
    monkeypatch.setattr(driver_deploy, "distrust", distrusted.append)
    driver_deploy._forget_others(None)
    assert distrusted == ["cuda"] * goes


@pytest.fixture
def on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_shell: Callable[[str], tuple[int, list[str]]]) -> Any:
    """Return a function that writes a record, runs the probe of it here, and returns the reading."""

    def read(text: str) -> Applied:
        path = tmp_path / "applied.json"
        path.write_text(text)
        probe = (
            AppliedFact().command().replace(PATH, str(path)).replace("FOLDERS='/etc/", f"FOLDERS='{tmp_path}/ /etc/")
        )
        monkeypatch.setattr(record, "PATH", str(path))
        monkeypatch.setattr(record, "FOLDERS", (f"{tmp_path}/",))
        code, lines = run_shell(probe)
        assert code == 0
        return parse_applied(checked(lines))

    return read


def test_the_probe_reads_each_file_of_the_record(on_disk: Callable[[str], Applied], tmp_path: Path) -> None:
    there = {
        str(tmp_path / name): OwnFile(digest(name), "644") for name in ("one", "two", "gone", "link", "with space")
    }
    for name in ("one", "two", "with space"):
        (tmp_path / name).write_text(name if name != "two" else "by hand")
        (tmp_path / name).chmod(0o640)
    (tmp_path / "link").symlink_to("one")
    found = on_disk(record_text("0.1", "digest", there))
    assert (found.readable, found.gpunode, found.settings) == (True, "0.1", "digest")
    assert dict(found.files) == there
    present = {Path(path).name: file for path, file in found.present}
    assert set(present) == {"applied.json", "one", "two", "with space"}
    assert {name: file.sha256 for name, file in present.items() if name != "applied.json"} == {
        "one": digest("one"), "two": digest("by hand"), "with space": digest("with space"),
    }  # fmt: skip
    assert str(present["one"].permissions).startswith("640 ")


def test_a_record_that_somebody_wrote_runs_nothing_and_reads_nothing_but_own_places(
    on_disk: Callable[[str], Applied], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "one").write_text("one")
    (tmp_path / "nobody's").write_text("of no concern")
    hostile = [
        f"{tmp_path}/$(touch {mark})", f"{tmp_path}/`touch {mark}`", f"{tmp_path}/; touch {mark}", f"{tmp_path}/*",
        f"{tmp_path}/' touch {mark} '", "--help", "/dev/zero", "/proc/kcore", "/proc/version", f"{tmp_path}/one",
        f"{tmp_path}/../{tmp_path.name}/nobody's", f"{tmp_path}/./nobody's",
    ]  # fmt: skip
    text = json.dumps({"settings": "x", "files": {path: {"sha256": "0"} for path in hostile}}, indent=2)
    found = on_disk(text)
    assert not mark.exists()
    assert {Path(path).name for path, _ in found.present} == {"applied.json", "one"}
    assert not {path for path, _ in found.files} & {"/dev/zero", "/proc/kcore", "--help"}
    assert not [path for path, _ in found.files if "/../" in path or "/./" in path]


NO_FILES = [1, [], "x", {"/etc/a": 1}, {"/etc/a": {"sha256": 1}}, {"/etc/a": {"mode": "644"}}]


@pytest.mark.parametrize(
    ("text", "readable"),
    [
        *((text, False) for text in ("", "{", "[]", "null", '{"files": 1}', "[" * 100_000, '{"settings": 1}')),
        *((json.dumps({"settings": "x", "files": found}), None) for found in NO_FILES),
    ],
)
def test_what_no_gpunode_wrote_says_nothing(
    on_disk: Callable[[str], Applied], text: str, readable: bool | None
) -> None:
    found = on_disk(text)
    assert found.files == () and readable in (None, found.readable)


def test_the_record_is_the_same_text_in_whatever_order_files_were_put() -> None:
    pair = [("/etc/a", OwnFile("1", "644")), ("/etc/b", OwnFile("2"))]
    assert record_text("0.1", "x", dict(pair)) == record_text("0.1", "x", dict(reversed(pair)))


NO_RECORD = Applied()
A = OwnFile(digest("one"), "644")


def run(host: Host, there: Applied = NO_RECORD, executing: bool = True) -> list[str]:
    """Return the commands of the record's operation, behind two files' operations."""
    host.state.is_executing = executing
    host.readings |= {FileFact: File(None, None, None, None), AppliedFact: there}
    commands(files.content, host, path="/etc/a", text="one")
    commands(files.content, host, path="/etc/b", text="two")
    commands(files.absent, host, path="/etc/b")
    return commands(applied.recorded, host, settings=SETTINGS)


def as_recorded(recorded: Mapping[str, OwnFile]) -> Applied:
    """Return the reading of a node after a run that kept these files."""
    text = record_text(version("gpunode"), SETTINGS.digest(), recorded)
    return Applied(True, "", "", tuple(recorded.items()), ((PATH, PresentFile("644 root:root", digest(text))),))


def records(command: str, by: str, settings: str, recorded: dict[str, OwnFile]) -> bool:
    return base64.b64encode(record_text(by, settings, recorded).encode()).decode() in command


def test_a_repository_s_entry_and_the_toolkit_s_pins_are_recorded_too(host: Host) -> None:
    run(host)
    host.readings[AptRepositoryFact] = TRUSTED
    assert commands(repositories.APT.trusted, host, **REPOSITORY) == []
    host.readings[DnfRepository] = DNF_TRUSTED
    assert commands(repositories.DNF.trusted, host, **DNF_ASKED) == []
    list(TOOLKIT_HOLDS["apt"](GOOD.toolkit, True))
    sources = {"/etc/apt/sources.list.d/gpunode-cuda.sources", "/etc/yum.repos.d/gpunode-cuda.repo"}
    assert set(kept() or {}) == {"/etc/a", *sources, PINS}
    list(TOOLKIT_HOLDS["apt"](GOOD.toolkit, False))
    assert PINS not in (kept() or {})


def _alone(host: Host, there: Applied) -> list[str]:
    """Return the commands of the record behind a deploy run alone, which keeps /etc/a and takes /etc/b away."""
    run(host, there)
    return commands(applied.brought_up_to_date, host)


def test_a_deploy_that_is_run_alone_brings_its_own_files_of_the_record_up_to_date_and_no_others(host: Host) -> None:
    files_there = {path: OwnFile("0" * 64, "644") for path in ("/etc/a", "/etc/b", "/etc/c")}
    there = Applied(True, "0.0.1", "digest", tuple(files_there.items()))
    (command,) = _alone(host, there)
    updated = {"/etc/a": A, "/etc/c": files_there["/etc/c"]}
    assert records(command, "0.0.1", "digest", updated)
    assert _alone(host, replace(there, files=tuple(updated.items()))) == []


@pytest.mark.parametrize("there", [Applied(), Applied(readable=False), Applied(True, "0.1", "digest")])
def test_a_deploy_that_is_run_alone_makes_no_record_and_no_entry(host: Host, there: Applied) -> None:
    assert _alone(host, there) == []


def test_the_verdict_behind_a_deploy_alone_keeps_what_the_record_says_of_other_files(host: Host) -> None:
    other = {"/etc/c": OwnFile("0" * 64, "644")}
    run(host, Applied(True, "0.1", "digest", tuple(other.items())))
    (command,) = commands(applied.recorded, host, settings=SETTINGS, whole=False)
    assert records(command, version("gpunode"), SETTINGS.digest(), {"/etc/a": A, **other})


def test_a_second_run_records_nothing_unless_others_may_write_the_record(host: Host) -> None:
    (command,) = run(host)
    # None that it took away.
    assert dict(kept() or {}) == {"/etc/a": A}
    assert records(command, version("gpunode"), SETTINGS.digest(), {"/etc/a": A})
    there = as_recorded(kept() or {})
    assert run(host, there) == run(host, there, executing=False) == []
    opened = tuple((path, replace(file, permissions="666 root:root")) for path, file in there.present)
    assert len(run(host, replace(there, present=opened))) == 1
    # A dry run forecasts no other text of a file before the run comes to it.
    host.state.is_executing = False
    host.readings[AppliedFact] = there
    commands(files.content, host, path="/etc/a", text="pinned to what is installed now")
    assert commands(applied.recorded, host, settings=SETTINGS) == []


def test_the_verdict_run_alone_forgets_no_file(host: Host) -> None:
    host.readings[AppliedFact] = as_recorded({"/etc/a": LEFT})
    assert (commands(applied.recorded, host, settings=SETTINGS), host.refusals) == ([], [])


@pytest.mark.parametrize("executing", [True, False])
def test_a_whole_run_that_keeps_no_own_file_clears_the_record_of_an_earlier_one(host: Host, executing: bool) -> None:
    component.begin_whole_run()
    host.state.is_executing = executing
    there = Applied(True, "0.1", "digest", (("/etc/a", LEFT),), (("/etc/a", PresentFile("644 root:root", "1")),))
    host.readings[AppliedFact] = there
    (command,) = commands(applied.recorded, host, settings=SETTINGS, whole=component.is_whole_run())
    assert records(command, version("gpunode"), SETTINGS.digest(), {})


def verdict_on(host: Host, text: str) -> None:
    """Have /etc/a hold a text that is not the recorded one."""
    now = PresentFile("644 root:root", digest(text))
    there = Applied(True, "0.1", SETTINGS.digest(), (("/etc/a", LEFT),), (("/etc/a", now),))
    host.readings[NodeFact] = replace(GOOD, applied=there)


def test_the_verdict_of_a_whole_run_that_keeps_no_own_file_asks_for_none_of_an_earlier_one(host: Host) -> None:
    verdict_on(host, "a hand's")
    # A deploy that is run alone knows of no file that nobody wants any more.
    assert commands(verdict.verified, host, settings=SETTINGS) == [] and len(host.refusals) == 1
    host.refusals.clear()
    component.begin_whole_run()
    assert (commands(verdict.verified, host, settings=SETTINGS), host.refusals) == ([], [])


def test_the_verdict_of_a_run_goes_by_its_own_files_and_that_of_a_dry_run_by_the_record(host: Host) -> None:
    verdict_on(host, "one")
    run(host)
    assert (commands(verdict.verified, host, settings=SETTINGS), host.refusals) == ([], [])
    host.state.is_executing = False
    assert (commands(verdict.verified, host, settings=SETTINGS), len(host.refusals)) == ([], 1)
    assert unnamed(host.refusals[0], "file /etc/a", "another text") == []


def test_a_file_of_the_driver_s_own_is_told_of_as_the_driver_s() -> None:
    def whose(path: str) -> str:
        return next(place.component for place in own_files_decide._places() if path.startswith(place.begins))

    assert {whose(path) for path in own_files_of_driver.PATHS} == {"driver"}
    assert {whose(path) for path in own_files_of_toolkit.PATHS} == {"toolkit"}
