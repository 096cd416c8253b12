"""Codes: every message that gpunode makes has one, each has a page, and none is forgotten."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.codes import OTHER, code_of, has_code, with_code
from gpunode.base.explained import pages
from gpunode.base.findings import Finding, FindingClass, finding_from
from gpunode.base.tables.reading import content
from gpunode.node.plan import Plan
from gpunode.node.verdict import judge
from gpunode.reference import codes, plan
from gpunode.settings import SettingsError, check_hosts
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure

GPUNODE = Path(__file__).resolve().parents[2] / "gpunode"
SOURCES = tuple(path for path in GPUNODE.rglob("*.py") if "reference" not in path.parts)
KNOWN = sorted(pages())
FINDINGS = [
    (row.component, what) for rows in codes.codes_of_source().values() for row in rows for what in row.what.split(" / ")
]


@pytest.mark.parametrize("code", KNOWN)
def test_a_page_says_what_it_is_what_it_means_and_what_to_do(code: str) -> None:
    page = pages()[code]
    assert re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", code) and page.code == code
    # One sentence, in which nothing is left to be filled in.
    assert re.fullmatch(r"[\w/].*\.", page.summary) and not re.search(r"…|\{|\}|\n", page.summary)
    assert page.summary.count(". ") == 0 and len(page.summary) <= 130
    assert page.detail.endswith(".") and page.detail != page.summary
    assert page.remedies and all(page.remedies) and page.summary not in page.remedies and page.exit
    assert "{" not in page.detail


@given(st.sampled_from(FINDINGS), st.text(min_size=1, max_size=20))
def test_whatever_a_node_fills_in_a_finding_has_a_code_that_is_explained(
    finding: tuple[str, str], filled_in: str
) -> None:
    component, what = finding
    code = code_of(component, what.replace("…", filled_in))
    if component == "any component":
        assert all(code.replace("any-component", each) in pages() for each in ("containerd", "docker", "crio")) or all(
            code.replace("any-component", row["component"]) in pages() for row in content("own_files.yaml")["places"]
        )
    else:
        assert code in pages()


def test_what_a_node_is_judged_by_is_explained_whether_it_is_as_desired_or_not() -> None:
    found = judge(SETTINGS, GOOD)
    assert len(found) > 10
    assert [item for item in found if item.code not in pages()] == []


def test_a_code_is_derived_from_the_longest_subject_and_not_from_what_is_behind_it() -> None:
    assert code_of("toolkit", "CDI specification /etc/cdi/nvidia.yaml") == "toolkit.cdi-specification"
    assert code_of("containerd", "CDI") == "containerd.cdi"
    assert code_of("rdma_shared_device_plugin", "RDMA devices of x") == "rdma-shared-device-plugin.rdma-devices"
    assert code_of("slurm", "state of the node") == "slurm.state-of-the-node"
    assert code_of("health", "state of 0000:1a:00.0") == "health.state"
    assert code_of("driver", "nothing of the kind") == f"driver.{OTHER}"


def test_a_finding_keeps_a_code_that_it_was_given_also_as_json() -> None:
    given_one = Finding("mig", FindingClass.UNSUPPORTED, "preflight", code="preflight.mig-has-none")
    assert finding_from(given_one.to_json()) == given_one
    assert Finding("driver", FindingClass.OK, "loaded module").to_json()["code"] == "driver.loaded-module"


def test_a_message_ends_in_its_code_once_of_several_lines_the_last() -> None:
    assert with_code("no", "a.b") == "no [a.b]" and with_code("2 mistakes:\n  x\n", "a.b") == "2 mistakes:\n  x [a.b]"
    assert has_code("2 mistakes:\n  x [a.b]")
    assert has_code("no [a.b]") and not has_code("no [a.b] more") and not has_code("no [OPTIONS]")


def literals(function: str) -> set[str]:
    """Return the first argument of each call of a function, where it is a literal."""
    found = set()
    for path in SOURCES:
        for call in (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)):
            name = call.func.id if isinstance(call.func, ast.Name) else None
            if name == function and call.args and isinstance(call.args[0], ast.Constant):
                found.add(str(call.args[0].value))
    return found


def test_every_refusal_and_caution_has_a_page_and_no_page_is_of_none() -> None:
    said = literals("refusal") | literals("caution") | literals("preflight")
    explained = {code.removeprefix("preflight.") for code in pages() if code.startswith("preflight.")}
    assert set(content("preflight.yaml")) <= explained
    assert explained == said
    assert {code for code, page in pages().items() if page.kind == codes.CAUTION} >= {
        f"preflight.{row}" for row in literals("caution")
    }


def test_every_contradiction_has_a_page() -> None:
    assert {f"settings.{row}" for row in content("contradictions.yaml")} <= set(pages())


def classes() -> Iterator[ast.ClassDef]:
    for path in (*SOURCES, *(GPUNODE.parent / "lab").glob("*.py")):
        yield from (node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ClassDef))


def coded() -> dict[str, str]:
    """Return name -> code of each class of errors that has one."""
    return {
        each.name: line.value.value
        for each in classes()
        if any(isinstance(base, ast.Name) and base.id == "CodedError" for base in each.bases)
        for line in each.body
        if isinstance(line, ast.Assign) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)
    }


def caught() -> set[str]:
    """Return the names of the errors that a command ends with."""
    found = set()
    for path in (GPUNODE / "cli").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ExceptHandler) and node.type is not None:
                each = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                found |= {name.id for name in each if isinstance(name, ast.Name)}
    return found


def test_every_error_that_ends_a_command_has_a_code_with_a_page() -> None:
    own = {name for name in caught() if not hasattr(builtins, name)} - {"Interrupted", "CodedError"}
    assert len(own) > 8 and own <= set(coded())
    assert set(coded().values()) <= set(pages())


def test_every_code_that_a_command_says_itself_has_a_page_and_no_page_is_of_none() -> None:
    tree = ast.parse((GPUNODE / "cli" / "errors.py").read_text("utf-8"))
    said = {
        node.value.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    assert len(said) > 8 and said <= set(pages())
    every = "\n".join(path.read_text("utf-8") for path in SOURCES)
    of_errors = {code for code, page in pages().items() if page.kind == codes.ERROR}
    assert {code for code in of_errors - said - set(coded().values()) if f'"{code}"' not in every} == set()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"drivr": {}}, "settings.unknown-name"),
        ({"driver": {"brnch": "580"}}, "settings.unknown-name"),
        ({"driver": {"branch": 580}}, "settings.wrong-type"),
        ({"driver": 1}, "settings.wrong-type"),
        ({"driver": {"source": "elsewhere"}}, "settings.not-allowed"),
        ({"driver": {"branch": "x"}}, "settings.wrong-value"),
        ({"driver": {"source": "absent"}, "cuda": {"version": "12.9"}}, "settings.contradiction"),
        ({"mps": {"enabled": True}, "kubernetes": {"enabled": True}}, "settings.mps-on-host"),
    ],
)  # fmt: skip
def test_a_mistake_in_settings_says_of_which_kind_it_is(data: dict[str, Any], code: str) -> None:
    with pytest.raises(SettingsError) as refused:
        check_hosts({"gpu-1": data})
    assert code in {problem.code for problem in refused.value.problems}
    lines = str(refused.value).splitlines()[1:]
    assert all(line.endswith(f" [{problem.code}]") for line, problem in zip(lines, refused.value.problems, strict=True))
    assert {problem.code for problem in refused.value.problems} <= set(pages())


def test_every_code_of_a_mistake_that_stands_in_the_source_has_a_page() -> None:
    every = "\n".join(path.read_text("utf-8") for path in (GPUNODE / "settings").rglob("*.py"))
    named = set(re.findall(r'"(settings\.[a-z-]+)"', every))
    assert len(named) > 8 and named <= set(pages())


def test_the_plan_of_the_documentation_has_codes_that_are_explained() -> None:
    plans = [found for found in plan.example().values() if isinstance(found, Plan)]
    told = [each for found in plans for each in (*found.refusals, *found.cautions)]
    assert told and all(each.code in pages() for each in told)


def test_no_code_goes_away_without_the_one_that_it_is_now() -> None:
    ever = set(codes.EVER.read_text("utf-8").split())
    gone = ever - set(pages())
    assert gone == set(codes.former()), "a code that goes needs an entry OLD: NEW in pages/former.yaml"
    assert set(codes.former().values()) <= set(pages()) and set(pages()) <= ever, "run: make docs"


def bodies(path: Path) -> Iterator[list[ast.stmt]]:
    """Yield each block of statements of a file."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        for name in ("body", "orelse", "finalbody"):
            if isinstance(block := getattr(node, name, None), list):
                yield block


def calls(statement: ast.stmt) -> str:
    """Return the call that a statement is; nothing where it is another one."""
    is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    return ast.unparse(statement) if is_call else ""


def test_no_command_ends_with_a_message_that_has_no_code() -> None:
    uncoded = []
    for path in sorted((GPUNODE / "cli").glob("*.py")):
        for block in bodies(path):
            said = [call for call in map(calls, block) if call.startswith("say(") and "err=True" in call]
            ends = any(re.match(r"sys\.exit\(ExitCode\.(?!GOOD)", call) for call in map(calls, block))
            if said and ends and not any(call.startswith("complain(") for call in map(calls, block)):
                uncoded.append((path.name, said))
    assert uncoded == []
