"""docs/coverage.md: what people write of GPU nodes, statement by statement, and by which test gpunode shows it.

tests/coverage.yaml says of each statement which settings, facts and tests are about it. What a test shows and how real
it is comes from the test: its name, its marks, its docstring, and its scenario's shows.yml. So the page cannot say more
than the tests do. `python -m tests.coverage` writes it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpunode.settings import component_models
from tests import support
from tests.changed_settings import fields

TESTS = Path(__file__).parent
STATEMENTS = TESTS / "coverage.yaml"
PAGE = TESTS.parent / "docs" / "coverage.md"
FACTS = TESTS.parent / "facts"
# Verdict -> what it says.
VERDICTS = {
    "full": "gpunode does what the statement says",
    "partly": "a part of it is missing, or nothing looks at it",
    "otherwise": "gpunode does it in another way, or refuses it, for a reason",
    "missing": "gpunode does not have it",
}
NO_TEST, NOT_HAD = "no test", "not had"
# The most real first.
LEVELS = {
    "real program on a lab node": "the program ran on a systemd node; its scenario's own note stands in parentheses",
    "SIMULATED on a lab node": "real packages, files and services, behind SIMULATED GPUs, drivers or kubelets",
    "real program": "the program ran on the machine of the tests",
    "SIMULATED": "a program of our own answered in the place of the real one",
    "unit test alone": "code decided by readings that the test made up",
    NO_TEST: "it is written down, or another's to do; nothing is run for it",
    NOT_HAD: "there is nothing to test",
}
_KEYS = {"says", "of", "verdict", "settings", "facts", "tests", "why"}
_BASE = "NodeFact"
_REALITY = frozenset({"pure", "real", "simulated"})


class CoverageError(ValueError):
    """Say which statement of tests/coverage.yaml is wrong, and how."""


@dataclass(frozen=True)
class Shown:
    """Hold a test: its name in words, its file below tests/, and how real it is."""

    words: str
    file: str
    level: str
    beside: str = ""


@dataclass(frozen=True)
class Statement:
    """Hold a statement: `of` are its places (text/number), `tests` are ids, `why` is what a verdict but full needs."""

    topic: str
    says: str
    of: tuple[str, ...]
    verdict: str
    settings: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    why: str = ""
    shown: tuple[Shown, ...] = field(default=(), compare=False)


def statements(path: Path = STATEMENTS) -> tuple[Statement, ...]:
    """Return the statements with their tests; raise CoverageError where one is wrong or a place is missing."""
    settings, facts = set(setting_names()), set(fact_names())
    found = []
    for topic, rows in yaml.safe_load(path.read_text(encoding="utf-8")).items():
        found += [_statement(topic, row, settings, facts) for row in rows]
    _all_places(found)
    return tuple(found)


def _statement(topic: str, row: Mapping[str, Any], settings: set[str], facts: set[str]) -> Statement:
    where = f"{topic}: {str(row.get('says'))!r}"
    if unknown := sorted(row.keys() - _KEYS):
        raise CoverageError(f"{where}: {unknown[0]!r} is none of {', '.join(sorted(_KEYS))}")
    if not row.get("says") or not row.get("of"):
        raise CoverageError(f"{where}: says and of are needed")
    lists = {name: tuple(row.get(name, ())) for name in ("of", "settings", "facts", "tests")}
    verdict, why = row.get("verdict"), row.get("why", "")
    if verdict not in VERDICTS:
        raise CoverageError(f"{where}: verdict {verdict!r} is none of {', '.join(VERDICTS)}")
    for kind, names in (("setting", settings), ("fact", facts)):
        for name in lists[f"{kind}s"]:
            if name not in names:
                raise CoverageError(f"{where}: there is no {kind} {name!r}")
    if verdict == "full" and not lists["tests"]:
        raise CoverageError(f"{where}: is full, and names no test that shows it")
    if verdict == "missing" and lists["tests"]:
        raise CoverageError(f"{where}: is missing, and names a test")
    if (verdict == "full") == bool(why):
        raise CoverageError(f"{where}: `why` belongs to every verdict but full, and {verdict!r} is the verdict")
    shown = tuple(_shown(where, each) for each in lists["tests"])
    return Statement(topic, row["says"], **lists, verdict=verdict, why=why, shown=shown)


def _all_places(found: list[Statement]) -> None:
    """Raise CoverageError where a place of a text is said twice, or left out below the last one."""
    places = [place for each in found for place in each.of]
    if twice := [place for place, count in Counter(places).items() if count > 1]:
        raise CoverageError(f"{twice[0]} is said twice")
    last: Counter[str] = Counter()
    for place in places:
        text, slash, number = place.partition("/")
        if not slash or not number.isdigit():
            raise CoverageError(f"{place!r} is no place, such as 000/1")
        last[text] = max(last[text], int(number))
    for text, most in last.items():
        if left := [number for number in range(1, most + 1) if f"{text}/{number}" not in places]:
            raise CoverageError(f"{text}/{left[0]} is left out")


def setting_names() -> Iterator[str]:
    """Yield every setting with its component: `driver.source`, `kubernetes.drain.timeout`."""
    for component, model in component_models().items():
        yield from (name for name, _ in fields(component, model))


def fact_names(folder: Path = FACTS) -> Iterator[str]:
    """Yield every fact as pyinfra is asked for it: `facts.gpu.Gpus`; by reading the files, not by importing them."""
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and _BASE in map(_name, node.bases):
                yield f"facts.{path.stem}.{node.name}"


def _name(base: ast.expr) -> str:
    """Return the name of a class that another derives from: NodeFact of NodeFact[Reading]."""
    return ast.unparse(base).partition("[")[0]


def words(name: str) -> str:
    """Return a test's name as words: `test_debian_12_s_driver_is_held` -> debian 12's driver is held."""
    # Digits that end a word (h100, docker2) are no part of a version.
    text = re.sub(r"(?<=\d)_(?=\d+(_|$))", ".", re.sub(r"(?<=[a-z])(\d+)_", r"\1 ", name.removeprefix("test")))
    return re.sub(r"_s(?=_|$)", "'s", text).replace("_", " ").strip()


@cache
def _tests(path: Path) -> Mapping[str, tuple[frozenset[str], str]]:
    """Return of each test of a file its marks, its file's where it has none of reality, and both docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    of_file = frozenset[str]()
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(getattr(each, "id", None) == "pytestmark" for each in node.targets):
            of_file = _marks(node.value)
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            own = frozenset[str]().union(*map(_marks, node.decorator_list))
            marks = (own & _REALITY or of_file & _REALITY) | (own | of_file) - _REALITY
            found[node.name] = marks, f"{ast.get_docstring(tree)} {ast.get_docstring(node)}"
    return found


def _marks(node: ast.expr) -> frozenset[str]:
    """Return the marks that an expression names (pytest.mark.real, only_slow) of those that count here."""
    names = {getattr(each, "attr", getattr(each, "id", "")).removeprefix("only_") for each in ast.walk(node)}
    return frozenset(names & (_REALITY | {"slow"}))


def _shown(where: str, test: str) -> Shown:
    file, _, name = test.partition("::")
    path = TESTS.parent / file
    if not file.startswith("tests/") or not path.is_file() or name not in _tests(path):
        raise CoverageError(f"{where}: there is no test {test!r}")
    below = file.removeprefix("tests/")
    marks, says = _tests(path)[name]
    real, notes = _of_scenario(path, name) if below.startswith("molecule/") else (level(marks, says), [])
    # What `make test` does not run.
    if only := "test-real" if below.startswith("real/") else "test-slow" if "slow" in marks else "":
        notes = [*notes, f"by `make {only}` alone"]
    return Shown(words(name), below, real, "; ".join(notes))


def level(marks: frozenset[str], says: str) -> str:
    """Return how real a test on this machine is; where marks and docstring differ, the less real one."""
    if "pure" in marks or not marks & {"real", "simulated"}:
        return "unit test alone"
    return "SIMULATED" if "simulated" in marks or "SIMULATED" in says else "real program"


@cache
def _scenarios() -> tuple[support.Shown, ...]:
    return tuple(support.shown())


def _of_scenario(path: Path, name: str) -> tuple[str, list[str]]:
    """Return how real a scenario's test is by its shows.yml, else by its file; and what shows.yml notes beside it."""
    of_scenario = [row for row in _scenarios() if row.scenario == path.parent.name]
    rows = [row for row in of_scenario if row.test == name]
    simulated = any(row.level == "simulated" for row in rows or of_scenario)
    if not rows:
        marks, says = _tests(path)[name]
        simulated = simulated or "simulated" in marks or "SIMULATED" in says
    notes = list(dict.fromkeys(row.note for row in rows if row.note))
    return ("SIMULATED" if simulated else "real program") + " on a lab node", notes


def document() -> str:
    """Return the text of docs/coverage.md; raise CoverageError."""
    found = statements()
    topics: dict[str, list[Statement]] = {}
    for each in found:
        topics.setdefault(each.topic, []).append(each)
    parts = [_head(found)]
    for topic, rows in topics.items():
        table = "\n".join(map(_row, rows))
        parts.append(
            f"## {topic}\n\n| statement | verdict | settings | facts | shown by |\n|---|---|---|---|---|\n{table}\n"
        )
    return "\n".join(parts)


def _head(found: tuple[Statement, ...]) -> str:
    places, verdicts, levels = Counter[str](), Counter[str](), Counter[str]()
    for each in found:
        verdicts[each.verdict] += 1
        places[each.verdict] += len(each.of)
        levels[_most_real(each)] += 1
    by_verdict = "\n".join(
        f"| {each} | {said} | {verdicts[each]} | {places[each]} |" for each, said in VERDICTS.items()
    )
    by_level = "\n".join(f"| {each} | {said} | {levels[each]} |" for each, said in LEVELS.items())
    return f"""# What people write of GPU nodes, and by which test gpunode shows it

Generated from `tests/coverage.yaml` and the tests by `make docs`; a test keeps it current. Do not edit by hand.

{len(found)} statements, which stand at {places.total()} places of five texts about NVIDIA GPUs in containers,
Kubernetes, MIG, MPS and gpushare. Each names the settings and the facts that are about it, and the tests that show it.
What a test shows is its own name, in words, and how real it is comes from its marks, its docstring and its scenario's
shows.yml: nothing here is ahead of the tests. NVIDIA's hardware
was read and judged ([hardware](hardware.md)), and no node was set up on it ([support](support.md)).

| verdict | it says | statements | places |
|---|---|---|---|
{by_verdict}

| the most real of its tests | it says | statements |
|---|---|---|
{by_level}
"""


def _most_real(statement: Statement) -> str:
    levels = {each.level for each in statement.shown} or {NOT_HAD if statement.verdict == "missing" else NO_TEST}
    return next(each for each in LEVELS if each in levels)


def _row(each: Statement) -> str:
    verdict = f"{each.verdict}: {each.why}" if each.why else each.verdict
    shown = "<br>".join(
        f"{one.words} (`{one.file}`): {one.level}{f' ({one.beside})' if one.beside else ''}" for one in each.shown
    )
    names = (", ".join(f"`{name}`" for name in group) for group in (each.settings, each.facts))
    cells = (each.says, verdict, *names, shown or _most_real(each))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Write docs/coverage.md."""
    try:
        PAGE.write_text(document(), encoding="utf-8")
    except (CoverageError, support.ShowsError) as error:
        print(error, file=sys.stderr)
        return 3
    print(f"{PAGE} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
