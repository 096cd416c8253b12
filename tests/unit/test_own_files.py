"""Own files that a hand was at: recorded by a run, read by the one probe, told by drift and verdict, each alone."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.file import File
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe_output import checked
from gpunode.deploys import component
from gpunode.deploys import driver as driver_deploy
from gpunode.facts.applied import Applied as AppliedFact
from gpunode.facts.deb import AptRepository as AptRepositoryFact
from gpunode.facts.families.dnf import DnfRepository
from gpunode.facts.file import File as FileFact
from gpunode.facts.node import Node as NodeFact
from gpunode.node import Node
from gpunode.node.components import desired_files
from gpunode.node.own_files import decide as own_files_decide
from gpunode.node.own_files import driver as own_files_of_driver
from gpunode.node.own_files import toolkit as own_files_of_toolkit
from gpunode.node.own_files.holds import TOOLKIT_PREFERENCES as PINS
from gpunode.node.own_files.repositories import forgets_cuda
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import applied, apt, dnf, files
from gpunode.operations import verify as verdict
from gpunode.operations.families.toolkit_hold import TOOLKIT_HOLDS
from gpunode.operations.own_files import kept
from gpunode.settings import Settings, settings_from
from gpunode.system import applied as record
from gpunode.system.applied import PATH, Applied, OwnFile, PresentFile, parse_applied, record_text
from tests.support.dnf import ASKED as DNF_ASKED
from tests.support.dnf import TRUSTED as DNF_TRUSTED
from tests.support.messages import unnamed
from tests.support.operations import REPOSITORY, TRUSTED
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD, SETTINGS

pytestmark = pytest.mark.pure

NOUVEAU = "/etc/modprobe.d/gpunode-nouveau.conf"
SOURCE = "/etc/apt/sources.list.d/gpunode-toolkit.sources"
RULE = "/etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules"
PROXY = "/etc/systemd/system/containerd.service.d/80-gpunode-proxy.conf"
PARAMETERS = "/etc/modprobe.d/gpunode-nvidia.conf"
# No setting tells what stands in it.
UNIT = "/etc/systemd/system/gpunode-mig-layout.service"
PROXIED = settings_from({**DATA, "proxy": {"http": "http://proxy.example:3128"}})
AS_LEFT = PresentFile("644 root:root", "a" * 64)
LEFT = OwnFile("a" * 64, "644")
CHANGED = "it was changed after the last run"
SINCE = "the settings, or gpunode, are others than those of the last whole run"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def node(
    became: dict[str, PresentFile | None] | None = None, of: Node = GOOD, asked: Settings = PROXIED, gpunode: str = ""
) -> Node:
    """Return a node as a run of `asked` left it; `became` is what became of some of its files."""
    texts = {path: text for path, text in desired_files(asked, of.machine).items() if text is not None}
    recorded = {path: OwnFile(digest_of(text), None if path == SOURCE else "644") for path, text in texts.items()}
    recorded[UNIT] = LEFT
    found: dict[str, PresentFile | None] = {
        path: PresentFile("644 root:root", file.sha256) for path, file in recorded.items()
    }
    found |= {PATH: AS_LEFT} | (became or {})
    there = tuple((path, file) for path, file in found.items() if file is not None)
    by = (gpunode or version("gpunode"), asked.digest())
    return replace(of, applied=Applied(True, *by, tuple(recorded.items()), there))


def bad(found: tuple[Finding, ...]) -> list[Finding]:
    return [item for item in found if item.finding_class is not FindingClass.OK]


def told(of: Node, asked: Settings = PROXIED, **more: Any) -> list[tuple[str, str, str | None, str | None]]:
    """Return component, what, found and wanted of all that is not good."""
    return [(item.component, item.what, item.actual, item.desired) for item in bad(judge(asked, of, **more))]


def test_files_as_the_settings_ask_are_good_findings() -> None:
    assert told(node()) == []
    assert {f"file {NOUVEAU}", f"file {PROXY}", f"file {UNIT}"} < {item.what for item in judge(PROXIED, node())}


@pytest.mark.parametrize(
    "path, file, expected",
    [
        (NOUVEAU, AS_LEFT, ("driver", f"file {NOUVEAU}", "another text", "as the settings ask")),
        (NOUVEAU, None, ("driver", f"file {NOUVEAU}", "none", "as the settings ask")),
        (NOUVEAU, replace(AS_LEFT, sha256=None), ("driver", f"file {NOUVEAU}", "unreadable", "as the settings ask")),
        (SOURCE, AS_LEFT, ("repositories", f"file {SOURCE}", "another text", "as the settings ask")),
        (PARAMETERS, AS_LEFT, ("driver", f"file {PARAMETERS}", "there", "none")),
        (UNIT, None, ("mig", f"file {UNIT}", "none", "as the last run left it")),
    ],
)
def test_a_file_that_is_gone_or_another_is_told_by_name_and_alone(
    path: str, file: PresentFile | None, expected: tuple[str, str, str, str]
) -> None:
    assert told(node({path: file})) == [expected]
    (item,) = bad(judge(PROXIED, node({path: file})))
    assert (item.finding_class, item.cause) == (FindingClass.DRIFT, CHANGED)
    assert (item.remedy, item.disruption) == ("run deploys/gpu_node.py again", Disruption.nothing)


def test_a_mode_counts_where_a_run_keeps_it_and_only_there() -> None:
    def opened(path: str) -> PresentFile:
        return replace(dict(node().applied.present)[path], permissions="666 root:root")

    changed = node({NOUVEAU: opened(NOUVEAU)})
    assert told(changed) == [("driver", f"file {NOUVEAU}", "666 root:root", "644 root:root")]
    assert told(node({SOURCE: opened(SOURCE)})) == []


def test_a_drop_in_of_a_daemon_s_unit_costs_the_restart_that_its_repair_brings() -> None:
    (item,) = bad(judge(PROXIED, node({PROXY: None})))
    assert (item.component, item.disruption) == ("containerd", Disruption.restart)


def test_what_its_effect_tells_already_is_told_once() -> None:
    without_rule = replace(GOOD, toolkit=replace(GOOD.toolkit, link_rule=False))
    assert [what for _, what, *_ in told(node({RULE: None}, without_rule))] == ["device links"]
    cuda, (_, _) = GOOD.keyrings.keys
    wrong_key = replace(GOOD, keyrings=replace(GOOD.keyrings, keys=(cuda, ("toolkit", "A" * 40))))
    assert [what for _, what, *_ in told(node({SOURCE: AS_LEFT}, wrong_key))] == ["key of toolkit"]
    # Another repository's key says nothing of it.
    _, toolkit = GOOD.keyrings.keys
    wrong_key = replace(GOOD, keyrings=replace(GOOD.keyrings, keys=(("cuda", "A" * 40), toolkit)))
    assert [what for _, what, *_ in told(node({SOURCE: AS_LEFT}, wrong_key))] == ["key of cuda", f"file {SOURCE}"]


def test_a_setting_that_changed_since_is_a_difference_of_its_files_and_says_so() -> None:
    left = node(asked=SETTINGS)
    found = bad(judge(PROXIED, left))
    assert [(item.what, item.actual, item.desired, item.cause) for item in found] == [
        (f"file {path}", "none", "as the settings ask", SINCE)
        for path in ("/etc/apt/apt.conf.d/80gpunode-proxy", PROXY)
    ]
    # And back again: what an earlier run wrote is to go.
    assert [(item.what, item.actual, item.desired) for item in bad(judge(SETTINGS, node()))] == [
        (f"file {path}", "there", "none") for path in ("/etc/apt/apt.conf.d/80gpunode-proxy", PROXY)
    ]


def test_a_repository_that_nothing_is_taken_from_any_more_goes_with_the_driver_that_came_from_it() -> None:
    cuda = "/etc/apt/sources.list.d/gpunode-cuda.sources"
    archive = settings_from({"driver": {"source": "distribution"}, "cuda": {"enabled": False}})
    assert desired_files(archive, GOOD.machine)[cuda] is None
    # CUDA still comes from there, or nobody brings a driver from elsewhere.
    for more in ({"driver": {"source": "distribution"}}, {"driver": {"source": "present"}, "cuda": {"enabled": False}}):
        assert desired_files(settings_from(more), GOOD.machine).get(cuda, "") is not None


@pytest.mark.parametrize(
    ("more", "goes"),
    [
        ({}, True),
        ({"dcgm": {"enabled": True}}, False),
        ({"cuda": {"enabled": True}}, False),
        ({"cuda": {"enabled": True, "source": "runfile", "release": "12.9.1", "runfile_sha256": "0" * 64}}, True),
        ({"driver": {"source": "runfile", "version": "580.95.05", "runfile_sha256": "0" * 64}}, True),
        ({"driver": {"source": "present"}}, False),
    ],
)
def test_the_driver_s_deploy_takes_no_repository_away_that_another_component_brings_back(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], goes: bool
) -> None:
    asked = settings_from({"driver": {"source": "distribution"}, "cuda": {"enabled": False}, **more})
    assert forgets_cuda(asked, GOOD.machine) is goes
    distrusted: list[str] = []
    monkeypatch.setattr(driver_deploy, "settings", lambda: asked)
    monkeypatch.setattr(driver_deploy, "node", lambda: GOOD.machine)
    monkeypatch.setattr(driver_deploy, "needed", lambda *_, **__: None)
    monkeypatch.setattr(driver_deploy, "distrust", distrusted.append)
    driver_deploy._forget_others(None)
    assert distrusted == ["cuda"] * goes
    # Drift says the same of the file.
    cuda = "/etc/apt/sources.list.d/gpunode-cuda.sources"
    assert (cuda in (found := desired_files(asked, GOOD.machine)) and found[cuda] is None) is goes


@pytest.mark.parametrize("runtime", ["containerd", "docker"])
def test_docker_s_repository_is_one_of_them_for_whichever_runtime_comes_from_it(runtime: str) -> None:
    other = "docker" if runtime == "containerd" else "containerd"
    data = {runtime: {"enabled": True, "source": "docker-repository"}, other: {"enabled": False}}
    text = desired_files(settings_from(data), GOOD.machine)["/etc/apt/sources.list.d/gpunode-docker.sources"]
    assert "URIs: https://download.docker.com/linux/debian\nSuites: bookworm\nComponents: stable\n" in str(text)


@pytest.mark.parametrize(
    "system", [{"architecture": "aarch64"}, {"id": "gentoo"}, {"id": "arch", "version_id": ""}, {"version_id": "99"}]
)
def test_a_system_that_gpunode_has_no_repository_for_has_none_of_ours(system: dict[str, str]) -> None:
    machine = replace(GOOD.machine, operating_system=replace(GOOD.operating_system, **system))  # type: ignore[arg-type]
    assert [path for path in desired_files(SETTINGS, machine) if path.endswith((".sources", ".repo"))] == []


def test_a_hold_that_nobody_asks_for_leaves_no_file() -> None:
    loose = settings_from({"driver": {"hold": False}})
    pins = {"/etc/apt/preferences.d/gpunode-driver", "/etc/apt/apt.conf.d/52gpunode-driver"}
    assert {path for path, text in desired_files(loose, GOOD.machine).items() if text is None} >= {*pins, PINS}
    held = desired_files(settings_from({"toolkit": {"hold": True, "version": "1.17.8"}}), GOOD.machine)
    # What they say where it is asked for follows from the packages.
    assert not held.keys() & {*pins, PINS}


def test_where_a_hand_was_at_work_since_other_settings_the_cause_says_both() -> None:
    (item,) = (item for item in bad(judge(PROXIED, node({NOUVEAU: None}, asked=SETTINGS))) if NOUVEAU in item.what)
    assert unnamed(str(item.cause), "by other settings", "did not end") == []
    (item,) = bad(judge(PROXIED, node({NOUVEAU: None}, gpunode="0.0.1")))
    assert "another gpunode" in str(item.cause)


def test_on_a_node_without_a_record_a_file_counts_that_is_there_and_is_another() -> None:
    assert told(replace(GOOD, applied=Applied())) == []
    alone = replace(GOOD, applied=Applied(present=((NOUVEAU, AS_LEFT), (UNIT, AS_LEFT))))
    assert told(alone) == [("driver", f"file {NOUVEAU}", "another text", "as the settings ask")]


def test_a_record_that_is_none_or_open_to_others_is_a_finding() -> None:
    def record_is(readable: bool, file: PresentFile) -> Node:
        good = node().applied
        present = tuple((path, file if path == PATH else there) for path, there in good.present)
        return replace(GOOD, applied=replace(good, readable=readable, present=present))

    broken = record_is(False, AS_LEFT)
    assert [item.cause for item in bad(judge(PROXIED, broken))] == [CHANGED]
    assert told(broken) == [("node", f"file {PATH}", "unreadable", "as the last run left it")]
    opened = record_is(True, replace(AS_LEFT, permissions="666 root:root"))
    assert told(opened) == [("node", f"file {PATH}", "666 root:root", "644 root:root")]
    # The verdict of a run comes before the run writes it anew.
    assert told(broken, kept={}) == told(opened, kept={}) == []


def test_in_a_run_what_it_keeps_counts_and_not_what_the_run_before_recorded() -> None:
    changed = node({NOUVEAU: replace(AS_LEFT, sha256="b" * 64), UNIT: None})
    assert told(changed, kept={NOUVEAU: OwnFile("b" * 64, "644")}) == []
    assert [what for _, what, *_ in told(changed, kept={NOUVEAU: LEFT})] == [f"file {NOUVEAU}"]


def test_the_plan_writes_it_anew_or_takes_it_away() -> None:
    (step,) = plan(PROXIED, node({NOUVEAU: None})).steps
    assert (step.component, step.action, step.pending) == ("driver", f"write {NOUVEAU} anew", False)
    (step,) = plan(PROXIED, node({PARAMETERS: AS_LEFT})).steps
    assert (step.component, step.action, step.pending) == ("driver", f"remove {PARAMETERS}", False)


@pytest.mark.parametrize(("shims", "disruption"), [(0, Disruption.restart), (2, Disruption.nothing)])
def test_a_drop_in_of_containerd_s_is_written_though_the_restart_that_reads_it_waits(
    shims: int, disruption: Disruption
) -> None:
    careful = settings_from(
        {**DATA, "proxy": {"http": "http://proxy.example:3128"}, "disruption": {"allow": "nothing"}}
    )
    busy = node({PROXY: None}, replace(GOOD, containerd=replace(GOOD.containerd, shims=shims)), careful)
    (step,) = plan(careful, busy).steps
    assert (step.action, step.pending, step.disruption) == (f"write {PROXY} anew", False, disruption)


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


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"files": 1}', "[" * 100_000, '{"settings": 1}'])
def test_a_record_that_is_no_record_is_unreadable(on_disk: Callable[[str], Applied], text: str) -> None:
    found = on_disk(text)
    assert (found.readable, found.files) == (False, ())


@pytest.mark.parametrize("found", [1, [], "x", {"/etc/a": 1}, {"/etc/a": {"sha256": 1}}, {"/etc/a": {"mode": "644"}}])
def test_entries_that_no_gpunode_wrote_say_nothing(on_disk: Callable[[str], Applied], found: object) -> None:
    assert on_disk(json.dumps({"settings": "x", "files": found})).files == ()


def test_the_record_is_the_same_text_in_whatever_order_files_were_put() -> None:
    one, two = OwnFile("1", "644"), OwnFile("2")
    assert record_text("0.1", "x", {"/etc/a": one, "/etc/b": two}) == record_text(
        "0.1", "x", {"/etc/b": two, "/etc/a": one}
    )


NO_RECORD = Applied()


def run(host: Host, there: Applied = NO_RECORD, executing: bool = True) -> list[str]:
    """Return the commands of the record's operation, behind two files' operations."""
    host.state.is_executing = executing
    host.readings |= {FileFact: File(None, None, None, None), AppliedFact: there}
    commands(files.content, host, path="/etc/a", text="one")
    commands(files.content, host, path="/etc/b", text="two")
    commands(files.absent, host, path="/etc/b")
    return commands(applied.recorded, host, settings=SETTINGS)


def as_recorded(host: Host, **changes: Any) -> Applied:
    """Return the reading of a node after such a run."""
    (command,) = run(host)
    text = record_text(version("gpunode"), SETTINGS.digest(), kept() or {})
    assert base64.b64encode(text.encode()).decode() in command
    files_there = tuple((kept() or {}).items())
    present = ((PATH, PresentFile("644 root:root", digest(text))),)
    return replace(Applied(True, "", "", files_there, present), **changes)


def test_a_run_records_the_files_that_it_keeps_and_none_that_it_took_away(host: Host) -> None:
    run(host)
    assert dict(kept() or {}) == {"/etc/a": OwnFile(digest("one"), "644")}


def test_a_repository_s_entry_and_the_toolkit_s_pins_are_recorded_too(host: Host) -> None:
    run(host)
    host.readings[AptRepositoryFact] = TRUSTED
    assert commands(apt.repository, host, **REPOSITORY) == []
    host.readings[DnfRepository] = DNF_TRUSTED
    assert commands(dnf.repository, host, **DNF_ASKED) == []
    state = GOOD.toolkit
    list(TOOLKIT_HOLDS["apt"](state, True))
    sources = {"/etc/apt/sources.list.d/gpunode-cuda.sources", "/etc/yum.repos.d/gpunode-cuda.repo"}
    assert set(kept() or {}) == {"/etc/a", *sources, PINS}
    list(TOOLKIT_HOLDS["apt"](state, False))
    assert PINS not in (kept() or {})


def _alone(host: Host, there: Applied) -> list[str]:
    """Return the commands of the record behind a deploy run alone, which keeps /etc/a and takes /etc/b away."""
    run(host, there)
    return commands(applied.brought_up_to_date, host)


def test_a_deploy_that_is_run_alone_brings_its_own_files_of_the_record_up_to_date_and_no_others(host: Host) -> None:
    files_there = {path: OwnFile("0" * 64, "644") for path in ("/etc/a", "/etc/b", "/etc/c")}
    there = Applied(True, "0.0.1", "digest", tuple(files_there.items()))
    (command,) = _alone(host, there)
    updated = {"/etc/a": OwnFile(digest("one"), "644"), "/etc/c": files_there["/etc/c"]}
    assert base64.b64encode(record_text("0.0.1", "digest", updated).encode()).decode() in command
    assert _alone(host, replace(there, files=tuple(updated.items()))) == []


@pytest.mark.parametrize("there", [Applied(), Applied(readable=False), Applied(True, "0.1", "digest")])
def test_a_deploy_that_is_run_alone_makes_no_record_and_no_entry(host: Host, there: Applied) -> None:
    assert _alone(host, there) == []


def test_the_verdict_behind_a_deploy_alone_keeps_what_the_record_says_of_other_files(host: Host) -> None:
    other = {"/etc/c": OwnFile("0" * 64, "644")}
    run(host, Applied(True, "0.1", "digest", tuple(other.items())))
    (command,) = commands(applied.recorded, host, settings=SETTINGS, whole=False)
    both = {"/etc/a": OwnFile(digest("one"), "644"), **other}
    assert base64.b64encode(record_text(version("gpunode"), SETTINGS.digest(), both).encode()).decode() in command


def test_a_second_run_records_nothing(host: Host) -> None:
    there = as_recorded(host)
    assert run(host, there) == run(host, there, executing=False) == []


def test_a_record_that_others_may_write_is_written_anew(host: Host) -> None:
    there = as_recorded(host)
    opened = tuple((path, replace(file, permissions="666 root:root")) for path, file in there.present)
    assert len(run(host, replace(there, present=opened))) == 1


def test_a_dry_run_forecasts_no_other_text_of_a_file_before_the_run_comes_to_it(host: Host) -> None:
    there = as_recorded(host)
    host.state.is_executing = False
    host.readings[AppliedFact] = there
    commands(files.content, host, path="/etc/a", text="pinned to what is installed now")
    assert commands(applied.recorded, host, settings=SETTINGS) == []


def test_the_verdict_run_alone_forgets_no_file(host: Host) -> None:
    text = record_text(version("gpunode"), SETTINGS.digest(), {"/etc/a": LEFT})
    host.readings[AppliedFact] = Applied(
        True, "", "", (("/etc/a", LEFT),), ((PATH, PresentFile("644 root:root", digest(text))),)
    )
    assert (commands(applied.recorded, host, settings=SETTINGS), host.refusals) == ([], [])


@pytest.mark.parametrize("executing", [True, False])
def test_a_whole_run_that_keeps_no_own_file_clears_the_record_of_an_earlier_one(host: Host, executing: bool) -> None:
    component.begin_whole_run()
    host.state.is_executing = executing
    there = Applied(True, "0.1", "digest", (("/etc/a", LEFT),), (("/etc/a", PresentFile("644 root:root", "1")),))
    host.readings[AppliedFact] = there
    (command,) = commands(applied.recorded, host, settings=SETTINGS, whole=component.is_whole_run())
    assert base64.b64encode(record_text(version("gpunode"), SETTINGS.digest(), {}).encode()).decode() in command


def test_the_verdict_of_a_whole_run_that_keeps_no_own_file_asks_for_none_of_an_earlier_one(host: Host) -> None:
    now = PresentFile("644 root:root", digest("a hand's"))
    there = Applied(True, "0.1", SETTINGS.digest(), (("/etc/a", LEFT),), (("/etc/a", now),))
    host.readings[NodeFact] = replace(GOOD, applied=there)
    # A deploy that is run alone knows of no file that nobody wants any more.
    assert commands(verdict.verified, host, settings=SETTINGS) == [] and len(host.refusals) == 1
    host.refusals.clear()
    component.begin_whole_run()
    assert (commands(verdict.verified, host, settings=SETTINGS), host.refusals) == ([], [])


def test_the_verdict_of_a_run_goes_by_its_own_files_and_that_of_a_dry_run_by_the_record(host: Host) -> None:
    now = PresentFile("644 root:root", digest("one"))
    there = Applied(True, "0.1", SETTINGS.digest(), (("/etc/a", LEFT),), (("/etc/a", now),))
    host.readings[NodeFact] = replace(GOOD, applied=there)
    run(host)
    assert (commands(verdict.verified, host, settings=SETTINGS), host.refusals) == ([], [])
    host.state.is_executing = False
    assert (commands(verdict.verified, host, settings=SETTINGS), len(host.refusals)) == ([], 1)
    assert unnamed(host.refusals[0], "file /etc/a", "another text") == []


def test_a_file_of_the_driver_s_own_is_told_of_as_the_driver_s() -> None:
    def whose(path: str) -> str:
        return next(place.component for place in own_files_decide._places() if path.startswith(place.begins))

    assert {path: whose(path) for path in own_files_of_driver.PATHS} == dict.fromkeys(
        own_files_of_driver.PATHS, "driver"
    )
    assert {whose(path) for path in own_files_of_toolkit.PATHS} == {"toolkit"}
