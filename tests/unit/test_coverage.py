"""docs/coverage.md says what the tests show, and nothing else; a statement that names what is not there is an error."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests import coverage

pytestmark = pytest.mark.pure

TEST = "tests/unit/test_coverage.py::test_the_page_is_current"
ROW: dict[str, object] = {
    "says": "It is so.",
    "of": ["000/1"],
    "verdict": "full",
    "settings": ["driver.source"],
    "facts": ["facts.gpu.Gpus"],
    "tests": [TEST],
}


def written(folder: Path, *rows: dict[str, object]) -> Path:
    """Return a file of statements."""
    path = folder / "coverage.yaml"
    path.write_text(yaml.safe_dump({"topic": list(rows)}))
    return path


def test_the_page_is_current() -> None:
    assert coverage.PAGE.read_text(encoding="utf-8") == coverage.document(), "run: make docs"


def test_no_place_of_a_text_is_lost() -> None:
    most: dict[str, int] = {}
    for each in coverage.statements():
        for text, _, number in (place.partition("/") for place in each.of):
            most[text] = max(most.get(text, 0), int(number))
    # What the five texts say; a sixth one, or a statement more, is a new number here.
    assert most == {"000": 51, "001": 61, "002": 16, "003": 29, "004": 28}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"settings": ["driver.sauce"]}, "there is no setting 'driver.sauce'"),
        ({"settings": ["kubernetes.drain"]}, "there is no setting 'kubernetes.drain'"),
        ({"facts": ["facts.gpu.Gpu"]}, "there is no fact 'facts.gpu.Gpu'"),
        ({"facts": ["facts.base.NodeFact"]}, "there is no fact"),
        ({"tests": [f"{TEST}_no_more"]}, "there is no test"),
        ({"tests": ["tests/unit/test_gone.py::test_it"]}, "there is no test"),
        ({"tests": ["gpunode/base/findings.py::test_it"]}, "there is no test"),
        ({"tests": []}, "is full, and names no test"),
        ({"verdict": "mostly"}, "'mostly' is none of full, partly, otherwise, missing"),
        ({"verdict": "missing", "why": "not yet"}, "is missing, and names a test"),
        ({"verdict": "partly"}, "`why` belongs to"),
        ({"why": "it is"}, "`why` belongs to"),
        ({"of": []}, "says and of are needed"),
        ({"level": "real"}, "'level' is none of"),
        ({"of": ["000/2"]}, "000/1 is left out"),
        ({"of": ["000/1", "000/1"]}, "000/1 is said twice"),
        ({"of": ["000-1"]}, "'000-1' is no place"),
    ],
)
def test_a_statement_that_names_what_is_not_there_is_an_error(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    assert coverage.statements(written(tmp_path, ROW))[0].verdict == "full"
    with pytest.raises(coverage.CoverageError) as error:
        coverage.statements(written(tmp_path, {**ROW, **change}))
    assert says in str(error.value)


def test_every_fact_that_a_person_can_ask_for_is_one() -> None:
    names = set(coverage.fact_names())
    assert {"facts.requirements.Requirements", "facts.node.Node", "facts.scheduler.Scheduler"} <= names
    assert not {each for each in names if "._" in each}


def test_a_test_s_name_is_read_as_words() -> None:
    assert coverage.words("test_somebody_else_s_unit_of_debian_12_s_is_left") == (
        "somebody else's unit of debian 12's is left"
    )
    assert coverage.words("test_cuda_12_9_ships_with_575_57_08") == "cuda 12.9 ships with 575.57.08"
    assert coverage.words("test_from_3g_2g_to_3g_1g") == "from 3g 2g to 3g 1g"


@pytest.mark.parametrize(
    ("marks", "says", "level"),
    [
        ({"real"}, "By real gpg.", "real program"),
        ({"real"}, "By real sh; systemctl is SIMULATED.", "SIMULATED"),
        ({"real", "simulated"}, "", "SIMULATED"),
        ({"pure", "simulated"}, "", "unit test alone"),
        (set(), "Without a mark.", "unit test alone"),
    ],
)
def test_where_marks_and_docstring_differ_the_less_real_one_counts(marks: set[str], says: str, level: str) -> None:
    assert coverage.level(frozenset(marks), says) == level


def test_how_real_a_scenario_s_test_is_comes_from_its_shows_yml(tmp_path: Path) -> None:
    def shown(test: str) -> tuple[str, str]:
        row = {**ROW, "tests": [f"tests/molecule/{test}"]}
        ((one,),) = (each.shown for each in coverage.statements(written(tmp_path, row)))
        return one.level, one.beside

    level, beside = shown("mps/test_mps.py::test_the_daemon_runs_with_its_settings_and_the_second_run_changes_nothing")
    assert level == "real program on a lab node" and "no GPU is real" in beside
    # It stands in no row of shows.yml: what its file and its scenario say counts.
    assert shown("mig/test_mig.py::test_twenty_layouts_drawn_at_random_are_reached_one_after_the_other") == (
        "SIMULATED on a lab node",
        "",
    )


def test_what_make_test_does_not_run_is_told(tmp_path: Path) -> None:
    tests = {
        "tests/real/test_repositories.py::test_everything_that_gpunode_asks_for_resolves": "by `make test-real` alone",
        "tests/molecule/pacman/test_2_driver.py::test_a_pacman_that_is_at_work_is_waited_for": (
            "by `make test-slow` alone"
        ),
        "tests/unit/test_breaks.py::test_a_break_is_caught_by_its_test": "by `make test-slow` alone",
        TEST: "",
    }
    (statement,) = coverage.statements(written(tmp_path, {**ROW, "tests": list(tests)}))
    assert [each.beside for each in statement.shown] == list(tests.values())
