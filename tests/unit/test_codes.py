"""Codes: every message that gpunode makes has one, each has a page, and none is forgotten."""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import explained
from gpunode.base.comparison import DRAIN_FIRST, REBOOT_NODE, FindingMessage
from gpunode.base.explained import asked, code_of, load, pages
from gpunode.base.findings import ExitCode, Finding, FindingClass, finding_from
from gpunode.base.messages import declared
from gpunode.base.tables.reading import content
from gpunode.cli import explain as command
from gpunode.cli import gpunode
from gpunode.cli.explain import list_text, page_text
from gpunode.node.plan import Plan
from gpunode.node.verdict import judge
from gpunode.reference import codes, plan
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure

GPUNODE = Path(__file__).resolve().parents[2] / "gpunode"
SOURCES = tuple(path for path in GPUNODE.rglob("*.py") if "reference" not in path.parts)
CLI = tuple((GPUNODE / "cli").glob("*.py"))
N = TypeVar("N", bound=ast.AST)
FINDINGS = [each for each in (load() or declared()).values() if isinstance(each, FindingMessage)]


@pytest.mark.parametrize("code", sorted(pages()))
def test_a_page_says_what_it_is_what_it_means_and_what_to_do(code: str) -> None:
    page = pages()[code]
    assert re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", code) and page.code == code
    # One sentence, in which nothing is left to be filled in.
    assert re.fullmatch(r"[\w/].*\.", page.summary) and not re.search(r"…|\{|\}|\n", page.summary)
    assert page.summary.count(". ") == 0 and len(page.summary) <= 130
    assert page.detail.endswith(".") and page.detail != page.summary
    assert page.remedies and all(page.remedies) and page.summary not in page.remedies and page.exit
    assert "{" not in page.detail


@given(st.sampled_from(FINDINGS), st.text(min_size=1, max_size=20) | st.none())
def test_a_finding_of_any_name_has_the_code_of_its_declaration(message: FindingMessage, name: str | None) -> None:
    finding = message.finding(FindingClass.OK, of=name)
    assert (finding.code, message.named(finding)) == (message.code, name)
    assert code_of(finding.component, finding.what) == message.code


def test_a_difference_has_cause_and_remedy_of_its_declaration_unless_the_call_gives_others() -> None:
    declared_alone = replace(FINDINGS[0], code="test.alone", cause="declared", remedies=("first", "second"))
    good, bad = (declared_alone.compared(None, 1, is_good) for is_good in (True, False))
    assert (good.finding_class, good.cause, good.remedy, good.actual) == (FindingClass.OK, None, None, "none")
    assert (bad.finding_class, bad.cause, bad.remedy, bad.code) == (
        FindingClass.DRIFT,
        "declared",
        "first",
        "test.alone",
    )
    given_both = declared_alone.compared(0, 1, False, cause="given", remedy="second")
    assert (given_both.cause, given_both.remedy) == ("given", "second")


def test_a_finding_has_a_remedy_for_each_class_that_waits() -> None:
    waits = {FindingClass.RESTART_PENDING: DRAIN_FIRST, FindingClass.REBOOT_PENDING: REBOOT_NODE}
    assert all(remedy in each.remedies for kind, remedy in waits.items() for each in FINDINGS if kind in each.classes)
    assert {kind for each in FINDINGS for kind in each.classes} == {*FindingClass} - {
        FindingClass.OK,
        FindingClass.NOT_KNOWN,
    }


def test_what_is_told_of_nodes_and_plans_has_codes_that_are_explained() -> None:
    plans = [found for found in plan.example().values() if isinstance(found, Plan)]
    planned = [each for found in plans for each in (*found.refusals, *found.cautions)]
    judged = judge(SETTINGS, GOOD)
    assert planned and len(judged) > 10
    assert {item.code for item in judged} | {each.code for each in planned} <= set(pages())


def test_a_finding_keeps_a_code_that_it_was_given_also_as_json() -> None:
    given_one = Finding("mig", FindingClass.UNSUPPORTED, "preflight", code="preflight.mig-has-none")
    assert finding_from(given_one.to_json()) == given_one
    derived = Finding("driver", FindingClass.REBOOT_PENDING, "loaded module").to_json()
    assert (derived["code"], derived["class"]) == ("driver.loaded-module", "reboot pending")


def test_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "GOOD": 0, "ERROR": 1, "NEGATIVE": 2, "INPUT_REFUSED": 3, "USAGE": 64,
    }  # fmt: skip


def nodes(kind: type[N], *paths: Path) -> Iterator[N]:
    """Yield the nodes of a kind of these files, or of the whole source."""
    for path in paths or SOURCES:
        yield from (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, kind))


def literals(function: str) -> set[str]:
    """Return the first argument of each call of a function, where it is a literal."""
    return {
        str(call.args[0].value)
        for call in nodes(ast.Call)
        if isinstance(call.func, ast.Name) and call.func.id == function
        if call.args and isinstance(call.args[0], ast.Constant)
    }


def test_every_refusal_and_caution_has_a_page_and_no_page_is_of_none() -> None:
    said = literals("refusal") | literals("caution") | literals("preflight")
    explained = {code.removeprefix("preflight.") for code in pages() if code.startswith("preflight.")}
    assert set(content("preflight.yaml")) <= explained
    assert explained == said
    assert {code for code, page in pages().items() if page.kind == codes.CAUTION} >= {
        f"preflight.{row}" for row in literals("caution")
    }


def coded() -> dict[str, str]:
    """Return name -> code of each class of errors that has one."""
    return {
        each.name: line.value.value
        for each in nodes(ast.ClassDef, *SOURCES, *(GPUNODE.parent / "lab").glob("*.py"))
        if any(isinstance(base, ast.Name) and base.id == "CodedError" for base in each.bases)
        for line in each.body
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
    }


def test_every_error_that_ends_a_command_has_a_code_with_a_page() -> None:
    handlers = [node.type for node in nodes(ast.ExceptHandler, *CLI) if node.type is not None]
    caught = {each.id for handler in handlers for each in ast.walk(handler) if isinstance(each, ast.Name)}
    # Those of another module begin with its name.
    own = {name for name in caught if name[0].isupper() and not hasattr(builtins, name)}
    own -= {"Interrupted", "CodedError"}
    assert len(own) > 8 and own <= set(coded())
    assert set(coded().values()) <= set(pages())


def test_every_code_that_a_command_says_itself_has_a_page_and_no_page_is_of_none() -> None:
    constants = (node.value for node in nodes(ast.Assign, GPUNODE / "cli" / "errors.py"))
    said = {value.value for value in constants if isinstance(value, ast.Constant)}
    assert len(said) > 8 and said <= set(pages())
    every = "\n".join(path.read_text("utf-8") for path in SOURCES)
    of_errors = {code for code, page in pages().items() if page.kind == codes.ERROR}
    assert {code for code in of_errors - said - set(coded().values()) if f'"{code}"' not in every} == set()


def test_every_code_of_a_mistake_in_settings_has_a_page() -> None:
    every = "\n".join(path.read_text("utf-8") for path in (GPUNODE / "settings").rglob("*.py"))
    named = set(re.findall(r'"(settings\.[a-z-]+)"', every))
    assert len(named) > 8
    assert named | {f"settings.{row}" for row in content("contradictions.yaml")} <= set(pages())


def test_no_code_goes_away_without_the_one_that_it_is_now() -> None:
    ever = set(codes.EVER.read_text("utf-8").split())
    gone = ever - set(pages())
    assert gone == set(codes.former()), "a code that goes needs an entry OLD: NEW in pages/former.yaml"
    assert set(codes.former().values()) <= set(pages()) and set(pages()) <= ever, "run: make docs"


def test_no_command_ends_with_a_message_that_has_no_code() -> None:
    uncoded = []
    blocks = (getattr(node, name, None) for node in nodes(ast.AST, *CLI) for name in ("body", "orelse", "finalbody"))
    for block in blocks:
        calls = [ast.unparse(each) for each in block if isinstance(each, ast.Expr)] if isinstance(block, list) else []
        said = [call for call in calls if call.startswith("say(") and "err=True" in call]
        ends = any(re.match(r"sys\.exit\(ExitCode\.(?!GOOD)", call) for call in calls)
        if said and ends and not any(call.startswith("complain(") for call in calls):
            uncoded.append(said)
    assert uncoded == []


# `gpunode explain`: the page of a code, by whatever somebody has seen of it.


def run(*words: str) -> Result:
    return CliRunner().invoke(gpunode, ["explain", *words])


def test_words_of_a_command_line_are_one_question() -> None:
    page = pages()["driver.loaded-module"]
    done = run("driver:", "loaded", "module:", "drift,", "3", "nodes")
    assert (done.exit_code, done.output) == (0, run(page.code).output)
    lines = done.output.splitlines()
    assert lines[0] == f"{page.code}: {page.summary}" and page.detail in lines and "\x1b" not in done.output
    assert "seen as    driver: loaded module" in lines
    assert [line[11:] for line in lines if line[11:] in page.remedies] == list(page.remedies)
    (ends,) = (line for line in lines if line.startswith("exit code"))
    assert ": drift: 2; reboot pending: 2; not known: 2" in ends and command.page_text(page, 40) != done.output


def test_without_a_code_all_are_listed_by_component() -> None:
    blocks = run().output.split("\n\n")
    assert [page for block in blocks for page in block.splitlines()] == [
        f"{page.code}: {page.summary}" for page in pages().values()
    ]
    assert all(len({line.partition(".")[0] for line in block.splitlines()}) == 1 for block in blocks)


def test_words_that_several_components_have_list_these() -> None:
    assert {"containerd.version", "docker.version", "dcgm.version"} <= {page.code for page in asked("version")}


def test_a_former_code_is_the_one_that_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"former": {"driver.old-name": "driver.loaded-module"}, "pages": {}}
    monkeypatch.setattr(explained, "_data", lambda: data)
    known = pages()
    monkeypatch.setattr(explained, "pages", lambda: known)
    assert [page.code for page in asked("driver.old-name")] == ["driver.loaded-module"]


def test_pages_are_data_for_programs() -> None:
    every = json.loads(run("--json").output)["pages"]
    assert [page["code"] for page in every] == list(pages())
    (one,) = json.loads(run("--json", "gpu-none").output)["pages"]
    assert one == json.loads(json.dumps(pages()["preflight.gpu-none"].to_json()))


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_every_page_and_the_list_fit_into_a_terminal(columns: int) -> None:
    texts = [page_text(page, columns) for page in pages().values()] + [list_text(pages().values(), columns)]
    for line in "\n".join(texts).splitlines():
        # A word that is longer than the terminal is not cut, nor is a command.
        is_command = line.strip().startswith("`")
        assert len(line) <= columns or is_command or len(line.split()) == 1 or len(line.split()[-1]) > columns - 20, (
            line
        )
