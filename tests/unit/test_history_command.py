"""`gpunode history` as people call it, and what other commands write for it; nodes are SIMULATED or not there."""

from __future__ import annotations

import json
import os
import sys
import tracemalloc
from contextlib import redirect_stdout
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.findings import ExitCode, Finding, FindingClass
from gpunode.cli.output import say_document
from gpunode.fleet import drift
from gpunode.fleet.engine.parts import Expected
from gpunode.history.place import Place
from gpunode.history.told import told as told_of
from gpunode.history.writing import record
from gpunode.settings.layers import LIMIT, SET
from tests.reference.output import SCHEMAS
from tests.support.history_documents import GOOD, INVENTORY, OLD, OLDER, UNKNOWN, UNREACHED, applied, document
from tests.support.messages import unnamed
from tests.support.simulated_rollout import Lab
from tests.support.snapshots import COLUMNS, check_snapshot, overlong

pytestmark = pytest.mark.pure

# Nothing listens on port 1 of this machine: the connection is refused at once.
NOBODY = "gpu = [('gpu-1', {'ssh_hostname': '127.0.0.1', 'ssh_port': 1, 'ssh_connect_retries': 0})]\n"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a history that does not exist yet, which all commands take."""
    found = tmp_path / "history.sqlite"
    monkeypatch.setenv("GPUNODE_HISTORY", str(found))
    return found


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    """Return an inventory of one host that is not there."""
    path = tmp_path / "fleet.py"
    path.write_text(NOBODY)
    return path


def gpunode(*words: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli.gpunode, list(map(str, words)), input=stdin)


def asked(*words: object) -> dict[str, Any]:
    """Return the document that `gpunode history` prints, which is of its schema."""
    done = gpunode("history", *words, "--json")
    assert done.exit_code == ExitCode.GOOD, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(found, SCHEMAS[f"history {words[0]}"]())
    return found


def told(folder: Path, *documents: dict[str, Any]) -> list[Path]:
    """Return files with documents."""
    paths = []
    for number, each in enumerate(documents):
        paths.append(folder / f"told {number}.json")
        paths[-1].write_text(json.dumps(each))
    return paths


OFF = {f"gpu-{number}": OLD for number in range(2, 12)}
NIGHT = (
    document(0, {f"gpu-{number}": GOOD for number in range(1, 13)} | {"gpu-20": OLD}),
    document(600, {f"gpu-{number}": OLD for number in range(1, 13)} | {"gpu-20": OLD, "gpu-21": UNREACHED}),
    document(660, OFF | {"gpu-1": OLD, "gpu-12": OLDER, "gpu-20": GOOD, "gpu-21": GOOD}),
    applied(700, {"gpu-1": GOOD}),
    document(1300, OFF | {"gpu-12": (OLDER, UNKNOWN), "gpu-1": UNREACHED}),
)  # fmt: skip


@pytest.fixture
def night(file: Path, tmp_path: Path) -> None:
    """Fill the history with what a fleet told in a day."""
    assert gpunode("history", "import", *told(tmp_path, *NIGHT)).exit_code == ExitCode.GOOD


@pytest.mark.parametrize("columns", [40, COLUMNS, 160])
@pytest.mark.parametrize(
    "words",
    [("findings",), ("changes", "--since", "2026-01-14T05:00", "--until", "2026-01-15")],
    ids=lambda each: each[0],
)
@pytest.mark.usefixtures("night")
def test_since_when_is_it_so_and_what_changed_last_night(
    words: tuple[str, ...], columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    done = gpunode("history", words[0], INVENTORY, *words[1:], "--output", "tty")
    assert overlong(done.stdout, columns) == []
    if columns == COLUMNS:
        check_snapshot(f"history_{words[0]}", done.stdout)


@pytest.mark.usefixtures("night")
def test_the_documents_have_their_schemas_and_the_same_answers() -> None:
    found = asked("findings", INVENTORY, "--host", "gpu-12")
    assert found["counts"] == {"hosts": 1, "findings": 2} and found["inventory"] == INVENTORY
    driver = next(each for each in found["findings"] if each["component"] == "driver")
    assert (driver["since"], driver["begun"], driver["last_good"], driver["or_earlier"]) == (
        "2026-01-14T10:00:00+00:00", "2026-01-14T11:00:00+00:00", "2026-01-14T00:00:00+00:00", False,
    )  # fmt: skip
    then = asked("findings", "--at", "2026-01-14T10:30", "--code", "driver")
    assert then["counts"] == {"hosts": 13, "findings": 13} and then["asked_at"] == "2026-01-14T10:30:00+00:00"
    counts = asked("changes", INVENTORY, "--since", "2026-01-14T05:00", "--until", "2026-01-15")["counts"]
    assert counts["changed"] == 1 and counts["ran"] == 1 and counts["left"] == 2
    (known,) = asked("inventories")["inventories"]
    assert (known["name"], known["hosts"], known["reports"]) == (INVENTORY, 12, 5)
    quiet = [gpunode("history", "findings", "--output", "quiet", "--host", name).stdout for name in ("gpu-2", "gpu-20")]
    assert quiet[0].startswith("driver: loaded module") and quiet[1] == ""


def test_many_findings_are_printed_as_one_document_and_take_little_memory(file: Path) -> None:
    hosts = {f"gpu-{number}": tuple(replace(OLD, what=f"module {each}") for each in range(10)) for number in range(200)}
    record(Place(file), told_of(document(0, hosts)), "fleet")
    # What is imported, and kept ready for all questions, is no part of it.
    gpunode("history", "findings", "--host", "gpu-1", "--json")
    tracemalloc.start()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        cli.gpunode(["history", "findings", "--json"], standalone_mode=False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak / 2000 < 3000
    done = gpunode("history", "findings", "--json")
    found = json.loads(done.stdout)
    assert len(found["findings"]) == 2000 and done.stdout == f"{json.dumps(found, indent=2)}\n"


@pytest.mark.parametrize(
    "rows", [[], [{"a": None}], [{"a": {"b": "\n\u2028é", "c": True}, "d": 'a "text"'}, {"a": None}]]
)
def test_rows_are_printed_as_the_whole_document_would_be(
    rows: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    say_document({"counts": {"hosts": 1}, "rows": iter(rows)})
    assert capsys.readouterr().out == json.dumps({"counts": {"hosts": 1}, "rows": rows}, indent=2) + "\n"


@pytest.mark.usefixtures("night")
def test_what_is_over_is_removed_by_age_and_told() -> None:
    assert unnamed(gpunode("history", "prune", "--older-than", "1d").stdout, "5 reports") == []
    assert asked("prune", "--older-than", "1d")["counts"] == {"findings": 0, "reports": 0, "hosts": 0}
    assert asked("findings", INVENTORY)["counts"]["findings"] > 10


def test_a_time_that_has_not_come_is_refused_and_one_that_is_there_is_removed(file: Path, tmp_path: Path) -> None:
    hour, old, later = told(tmp_path, document(0, {"gpu-1": GOOD}), document(60, {"gpu-1": OLD}), {})
    later.write_text(json.dumps({**document(0, {"gpu-1": GOOD}), "at": "2036-01-01T00:00:00+00:00"}))
    done = gpunode("history", "import", hour, later, old)
    assert done.exit_code == ExitCode.INPUT_REFUSED and unnamed(done.stderr, later, "history.future") == []
    # As an earlier gpunode took it.
    record(Place(file), told_of(json.loads(later.read_text())), INVENTORY)
    gpunode("history", "import", old)
    hidden = gpunode("history", "findings", INVENTORY, "--json")
    assert json.loads(hidden.stdout)["findings"] == []
    assert unnamed(hidden.stderr, "history.future", "gpunode history forget") == []
    assert asked("forget", "--after", "now")["counts"] == {"findings": 0, "reports": 1, "hosts": 0}
    shown = gpunode("history", "findings", INVENTORY, "--json")
    assert [each["since"] for each in json.loads(shown.stdout)["findings"]] == ["2026-01-14T01:00:00+00:00"]
    assert shown.stderr == ""


def test_drift_warns_of_a_history_that_has_a_later_report(file: Path, inventory: Path) -> None:
    of_later = {**document(0, {"gpu-1": GOOD}), "at": "2036-01-01T00:00:00+00:00"}
    record(Place(file), told_of(of_later), str(inventory))
    assert unnamed(gpunode("drift", inventory).stderr, "history.future", str(inventory)) == []


@pytest.mark.parametrize(
    "text",
    ["not JSON", "[1]", "[" * 100_000,
     '{"at": "2026-01-14", "gpunode": "1", "exit_code": 0, "hosts": {"a": {"findings": [{}]}}}',
     '{"at": "2026-01-14", "gpunode": "1", "exit_code": 2, "hosts": {"a": {"findings": [{"code": 5, "component": "a",'
     ' "class": "drift", "what": "w", "actual": null, "desired": null, "cause": null, "remedy": null}]}}}'],
)  # fmt: skip
def test_what_is_no_document_is_refused_and_nothing_behind_it_is_taken(file: Path, tmp_path: Path, text: str) -> None:
    good, bad, behind = told(tmp_path, document(0, {"gpu-1": OLD}), {}, document(10, {"gpu-1": GOOD}))
    bad.write_text(text)
    done = gpunode("history", "import", good, bad, behind)
    assert done.exit_code == ExitCode.INPUT_REFUSED and "Traceback" not in done.output
    assert unnamed(done.stderr, bad, "history.no-document") == []
    assert len(asked("findings")["findings"]) == 1


def test_drift_writes_what_it_found_and_its_page_shows_since_when(file: Path, inventory: Path, tmp_path: Path) -> None:
    since = Finding("node", FindingClass.UNREACHABLE, "connection", "none", "ssh", code="node.connection")
    gpunode("history", "import", *told(tmp_path, document(90, {"gpu-1": since}, inventory=str(inventory))))
    page = tmp_path / "page.html"
    done = gpunode("drift", inventory, "--html", page)
    assert done.exit_code == ExitCode.ERROR and "history" not in done.stderr
    assert "since" in page.read_text() and "2026-01-14 01:30" in page.read_text()
    (found,) = asked("findings", inventory)["findings"]
    assert found["since"] == "2026-01-14T01:30:00+00:00" and found["told_by"] == "drift"
    assert (datetime.now(UTC) - datetime.fromisoformat(found["last"])).total_seconds() < 300
    # Without a history the page says nothing of the kind.
    assert gpunode("drift", inventory, "--html", page, "--history", "none").exit_code == ExitCode.ERROR
    assert "2026-01-14" not in page.read_text()


def test_apply_and_each_reading_of_a_rollout_are_written(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab").mkdir()
    lab = Lab(tmp_path / "lab")
    monkeypatch.chdir(lab.folder)
    monkeypatch.setattr(drift, "inspect", lab.inspect)
    monkeypatch.setattr(sys, "executable", str(lab.folder / "python"))
    monkeypatch.setenv("PATH", f"{lab.folder / 'bin'}:{os.environ['PATH']}")
    done = gpunode("rollout", "--max-unavailable", "50%", "fleet.py")
    assert done.exit_code == ExitCode.GOOD, done.output
    (known,) = asked("inventories")["inventories"]
    # A reading behind each of the three waves, of which two can be of one second, and how it ended.
    assert known["hosts"] == 4 and known["reports"] in (3, 4) and asked("findings", "fleet.py")["findings"] == []
    (ran,) = [each for each in asked("changes", "fleet.py")["changes"] if each["change"] == "ran"]
    assert (ran["by"], ran["run"]) == ("rollout", "finished, exit code 0")


@pytest.mark.parametrize("target", ["/", "/dev/full"])
def test_a_history_that_cannot_be_written_is_told_and_changes_neither_document_nor_exit_code(
    tmp_path: Path, inventory: Path, target: str
) -> None:
    file = tmp_path / "broken"
    file.symlink_to(target)
    alone = gpunode("drift", inventory, "--json", "--history", "none")
    done = gpunode("drift", inventory, "--json", "--history", file)
    assert done.exit_code == alone.exit_code == ExitCode.ERROR
    assert json.loads(done.stdout)["hosts"] == json.loads(alone.stdout)["hosts"]
    assert unnamed(done.stderr, "caution", "history.unavailable", "`--history none`") == []


def test_without_a_word_it_is_a_file_of_one_s_own_state(
    tmp_path: Path, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUNODE_HISTORY")
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "service"))
    gpunode("drift", inventory)
    assert (tmp_path / "service/history.sqlite").is_file() and asked("findings")["counts"]["hosts"] == 1


def test_controllers_with_the_inventory_at_different_places_share_one_name(
    file: Path, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUNODE_HISTORY_AS", "prod")
    gpunode("drift", inventory)
    # Whoever names another one means that, which is no part of this one.
    text = json.dumps(document(0, {"gpu-1": OLD}))
    gpunode("history", "import", "-", "--inventory", "rack-7", stdin=text)
    assert {each["name"] for each in asked("inventories")["inventories"]} == {"prod", "rack-7"}


@pytest.mark.parametrize(
    ("environment", "words"),
    # A worker's reading goes into its controller's history alone; how it would be by other settings is not how it is.
    [(Expected("0", "other").environment(), ()), ({}, ("--set", "driver.branch=570"))],
)
def test_a_reading_that_is_not_the_controller_s_own_is_not_written(
    file: Path, inventory: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    with monkeypatch.context() as of_one_command:
        # The command sets the first two for its children; here they are this process's.
        for name, value in {SET: "", LIMIT: "", **environment}.items():
            of_one_command.setenv(name, value)
        gpunode("drift", *words, inventory)
    assert not file.exists()
    gpunode("drift", inventory)
    assert file.exists()


def test_what_a_node_says_does_nothing_to_a_terminal(file: Path, tmp_path: Path) -> None:
    nasty = Finding(
        "driver",
        FindingClass.DRIFT,
        "loaded module",
        "\x1b]0;owned\x07\x1b[2J",
        "580",
        "\x9b31m",
        code="driver.loaded-module",
    )
    gpunode("history", "import", *told(tmp_path, document(0, {"gpu-1\x1b[1m": nasty})))
    for words in (("findings",), ("changes", "--since", "2026-01-13")):
        printed = gpunode("history", *words).stdout
        assert "owned" in printed
        assert not set(printed) & {"\x1b", "\x07", "\x9b"}
