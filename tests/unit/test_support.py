"""docs/support.md says what the scenarios show, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import support

ROW = "- {family: dnf, component: driver held, level: simulated, test: test_it_stays}\n"


@pytest.fixture
def scenarios(tmp_path: Path) -> Path:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / "molecule.yml").touch()
    (folder / "test_one.py").write_text("def test_it_stays(): ...\n")
    (folder / "shows.yml").write_text(ROW)
    return tmp_path


def test_the_page_is_current() -> None:
    text = support.PAGE.read_text(encoding="utf-8")
    assert text == support.page(text, list(support.shown()), support.seen_with()), "run: python -m tests.support"


def test_a_cell_names_the_scenarios_and_an_empty_one_is_untested(scenarios: Path) -> None:
    (scenarios / "one" / "shows.yml").write_text(ROW + ROW.replace("simulated", "real, note: by hand"))
    rows = list(support.shown(scenarios))
    seen = dict.fromkeys(support.COMPONENTS, "seen")
    (line,) = (line for line in support.table(rows, seen).splitlines() if line.startswith("| driver held"))
    *cells, last = (cell.strip() for cell in line.split("|")[2:-1])
    assert last == "seen"
    families = list(support.FAMILIES)
    assert cells[families.index("dnf")] == "real (one: by hand), simulated (one)"
    assert {cell for name, cell in zip(families, cells, strict=True) if name != "dnf"} == {"untested"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (ROW.replace("test_it_stays", "test_it_went"), "one/shows.yml: there is no test 'test_it_went'"),
        (ROW.replace("simulated", "believed"), "'believed' is none of real, simulated"),
        (ROW.replace("dnf", "yum"), "'yum' is none of apt"),
        (ROW.replace("driver held", "luck"), "'luck' is none of"),
        (ROW.replace("level", "how"), "one/shows.yml"),
    ],
)
def test_a_scenario_that_shows_what_is_not_there_is_an_error(scenarios: Path, text: str, says: str) -> None:
    (scenarios / "one" / "shows.yml").write_text(text)
    with pytest.raises(support.ShowsError, match=says.replace("(", r"\(")):
        list(support.shown(scenarios))


def test_a_scenario_that_says_nothing_is_an_error(scenarios: Path) -> None:
    (scenarios / "one" / "shows.yml").unlink()
    with pytest.raises(support.ShowsError, match=r"shows\.yml is missing"):
        list(support.shown(scenarios))


def test_a_page_without_marks_is_an_error() -> None:
    with pytest.raises(support.ShowsError, match="lost its marks"):
        support.page("# empty", [], {})


def test_what_a_component_was_seen_with_is_told_with_its_date(tmp_path: Path) -> None:
    kinds = {name: "{}" for name in support.COMPONENTS}
    kinds["MIG"] = '{programs: "2026-11-22, nvidia-smi 550", fixtures: "2026-11-21"}'
    kinds["DKMS"] = '{hardware: "2027-01-02, an H100"}'
    told = support.seen_with(_seen(tmp_path, kinds))
    assert told["MIG"] == (
        "fixtures of our own since 2026-11-21; real programs since 2026-11-22 (nvidia-smi 550); no hardware"
    )
    assert told["DKMS"] == "hardware since 2027-01-02 (an H100)"
    assert told["docker"] == "no hardware"


@pytest.mark.parametrize(
    ("name", "kinds", "says"),
    [
        ("luck", "{}", "'luck' is no component"),
        ("MIG", "{belief: '2026-11-22'}", "'belief' is none of fixtures, metadata, programs, hardware"),
        ("MIG", "{fixtures: lately}", "MIG: fixtures: 'lately' does not begin with a date"),
    ],
)
def test_what_nobody_can_have_seen_is_an_error(tmp_path: Path, name: str, kinds: str, says: str) -> None:
    with pytest.raises(support.ShowsError, match=says):
        support.seen_with(_seen(tmp_path, {**dict.fromkeys(support.COMPONENTS, "{}"), name: kinds}))


def test_a_component_that_is_left_out_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(support.ShowsError, match="'docker' is missing"):
        support.seen_with(_seen(tmp_path, {name: "{}" for name in support.COMPONENTS if name != "docker"}))


def test_nothing_was_set_up_on_hardware() -> None:
    """The day that a node was, this test goes, and support.md's closing words with it."""
    seen = [name for name, told in support.seen_with().items() if not told.endswith("no hardware")]
    assert seen == ["a container sees its GPU", "drift"]
    closing = support.PAGE.read_text(encoding="utf-8").rstrip().splitlines()[-2:]
    assert " ".join(closing).endswith("no driver was installed, and no setting changed, on a machine with a GPU.")


def _seen(folder: Path, kinds: dict[str, str]) -> Path:
    path = folder / "seen_with.yaml"
    path.write_text("".join(f"{name}: {text}\n" for name, text in kinds.items()))
    return path
