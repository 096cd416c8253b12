"""Codes: every message that gpunode makes has one, each has a page, and none is forgotten."""

from __future__ import annotations

import ast
import builtins
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import explained
from gpunode.base.comparison import DRAIN_FIRST, REBOOT_NODE, FindingMessage
from gpunode.base.errors import CodedError
from gpunode.base.explained import asked, code_of, load, pages
from gpunode.base.findings import ExitCode, Finding, FindingClass, finding_from
from gpunode.base.messages import Kind, as_data, command_error, declared
from gpunode.base.verdicts import CautionMessage, RefusalMessage
from gpunode.cli import explain as command
from gpunode.cli import gpunode
from gpunode.cli.errors import USAGE
from gpunode.cli.explain import list_text, page_text
from gpunode.lab.errors import LabError
from gpunode.node.plan import Plan
from gpunode.node.verdict import judge
from tests.reference import codes, plan
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
    assert not page.detail or (page.detail.endswith(".") and page.detail != page.summary)
    assert page.remedies and all(page.remedies) and page.summary not in page.remedies and page.exit
    assert "{" not in page.detail


@given(st.sampled_from(FINDINGS), st.text(min_size=1, max_size=20) | st.none())
def test_a_finding_of_any_name_has_the_code_of_its_declaration(message: FindingMessage, name: str | None) -> None:
    finding = message.finding(FindingClass.OK, of=name)
    assert (finding.code, message.named(finding)) == (message.code, name and as_data(name))
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
    assert {kind for each in FINDINGS for kind in each.classes} == {*FindingClass} - {FindingClass.OK}


def test_what_is_told_of_nodes_and_plans_has_codes_that_are_explained() -> None:
    plans = [found for found in plan.example().values() if isinstance(found, Plan)]
    planned = [each for found in plans for each in (*found.refusals, *found.cautions)]
    judged = judge(SETTINGS, GOOD)
    assert planned and len(judged) > 10
    assert {item.code for item in judged} | {each.code for each in planned} <= set(pages())


def test_a_finding_keeps_its_code_also_as_json() -> None:
    item = Finding("mig", FindingClass.UNSUPPORTED, "preflight", code="preflight.mig-has-none")
    assert finding_from(item.to_json()) == item


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


def test_every_refusal_and_caution_is_declared_and_has_a_page_of_its_kind() -> None:
    for kind, function in ((Kind.REFUSAL, "RefusalMessage"), (Kind.CAUTION, "CautionMessage")):
        own = {code for code, page in pages().items() if page.kind == kind and code.startswith("preflight.")}
        assert len(own) > 20 and own == {f"preflight.{row}" for row in literals(function)}
    # verdicts.py makes them of declarations, plan.py of a plan's JSON.
    makers = {
        path.name
        for path in SOURCES
        for call in nodes(ast.Call, path)
        if ast.unparse(call.func) in ("Refusal", "Caution")
    }
    assert makers == {"verdicts.py", "plan.py"}


def fields(message: RefusalMessage) -> set[str]:
    """Return the values that the texts of a refusal name."""
    texts = (message.component, message.reason, message.source, message.remedy)
    named = (field for text in texts for _, field, _, _ in Formatter().parse(text) if field)
    return {re.split(r"[.!:]", field)[0] for field in named}


def raised() -> Iterator[tuple[RefusalMessage, ast.Call, ast.FunctionDef]]:
    """Yield each call of a declared refusal or caution with its declaration, and the function that raises it."""
    explained.load()
    for module in [each for name, each in sys.modules.items() if name.startswith("gpunode.")]:
        own = {name: each for name, each in vars(module).items() if isinstance(each, RefusalMessage)}
        for function in nodes(ast.FunctionDef, Path(str(module.__file__))) if own else ():
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in own:
                    yield own[call.func.id], call, function


def test_every_refusal_and_caution_is_raised_with_the_values_that_it_names() -> None:
    calls = list(raised())
    # The values of `**values` are known only when it runs.
    plain = [(message, call) for message, call, _ in calls if all(each.arg for each in call.keywords)]
    given = [(message.code, {str(each.arg) for each in call.keywords}) for message, call in plain]
    assert given == [(message.code, fields(message)) for message, _ in plain]
    assert len(plain) > 100
    assert {message.code for message, _, _ in calls} == {
        each.code for each in declared().values() if isinstance(each, RefusalMessage)
    }


def test_no_caution_is_raised_where_refusals_are() -> None:
    # A Caution is a Refusal to mypy, and would stop the node.
    returns = [(ast.unparse(function.returns), message) for message, _, function in raised() if function.returns]
    refusing = [message for returned, message in returns if "Refusal" in returned]
    assert len(refusing) > 80 and [each.code for each in refusing if isinstance(each, CautionMessage)] == []


def errors(kind: type[CodedError] = CodedError) -> Iterator[type[CodedError]]:
    """Yield every class of errors that has a code."""
    for each in kind.__subclasses__():
        yield each
        yield from errors(each)


def test_every_error_that_ends_a_command_has_a_declared_code() -> None:
    explained.load()
    handlers = [node.type for node in nodes(ast.ExceptHandler, *CLI) if node.type is not None]
    caught = {each.id for handler in handlers for each in ast.walk(handler) if isinstance(each, ast.Name)}
    # Those of another module begin with its name.
    own = {name for name in caught if name[0].isupper() and not hasattr(builtins, name)}
    own -= {"Interrupted", "CodedError"}
    coded = {each.__name__: each.code for each in errors()}
    assert len(own) > 8 and own | {LabError.__name__} <= set(coded)
    assert set(coded.values()) <= set(declared())


def test_every_code_that_the_source_has_as_text_is_explained() -> None:
    # A declaration returns a Code; without one are the findings of judges, and pull.py, which runs without gpunode.
    texts: list[ast.expr] = []
    for call in nodes(ast.Call):
        texts += [each.value for each in call.keywords if each.arg == "code"]
        texts += call.args[:1] if isinstance(call.func, ast.Name) and call.func.id == "Refused" else []
    said = {each.value for each in texts if isinstance(each, ast.Constant) and each.value}
    assert {"agent.busy", "agent.bundle-older"} <= said and said <= set(pages())


def test_a_code_is_declared_once() -> None:
    explained.load()
    before = dict(declared())
    with pytest.raises(ValueError, match=USAGE):
        command_error(USAGE, "Another summary.", remedy="none")
    assert declared() == before


def test_codes_are_declared_also_where_an_extra_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "gpunode.fleet.engine.dask_client", raising=False)
    monkeypatch.setitem(sys.modules, "dask", None)
    explained.load.__wrapped__()
    assert "gpunode.fleet.engine.dask_client" not in sys.modules and "engine.refused" in declared()


def test_no_code_goes_away_without_the_one_that_it_is_now() -> None:
    ever = set(codes.EVER.read_text("utf-8").split())
    gone = ever - set(pages())
    assert gone == set(explained.FORMER), "a code that goes needs an entry in FORMER of gpunode/base/explained.py"
    assert set(explained.FORMER.values()) <= set(pages()) and set(pages()) <= ever, "run: make docs"


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
    monkeypatch.setattr(explained, "FORMER", {"driver.old-name": "driver.loaded-module"})
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
