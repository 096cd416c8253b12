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
    assert text == support.page(text, list(support.shown())), "run: python -m tests.support"


def test_a_cell_names_the_scenarios_and_an_empty_one_is_untested(scenarios: Path) -> None:
    (scenarios / "one" / "shows.yml").write_text(ROW + ROW.replace("simulated", "real, note: by hand"))
    rows = list(support.shown(scenarios))
    (line,) = (line for line in support.table(rows).splitlines() if line.startswith("| driver held"))
    cells = [cell.strip() for cell in line.split("|")[2:-1]]
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
        support.page("# empty", [])
