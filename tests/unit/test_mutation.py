"""The mutants themselves: what is changed, what is left to people, and that a sample is the same tomorrow."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path

import pytest

from tests.mutation.__main__ import row, sample, share
from tests.mutation.code_swap import changed_functions, put_in, put_in_text
from tests.mutation.groups import CHECKOUT, GROUPS, Group
from tests.mutation.judging import Judged
from tests.mutation.mutant import Mutant
from tests.mutation.python_mutants import python_mutants
from tests.mutation.shell_mutants import shell_mutants

pytestmark = [pytest.mark.pure, pytest.mark.tier2]


def told(mutants: object) -> list[tuple[str, str, str]]:
    return [(each.operator, each.before, each.after) for each in mutants]  # type: ignore[attr-defined]


def of_shell(script: str) -> list[tuple[str, str, str]]:
    return told(shell_mutants("x.sh", script))


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ('[ -f "$1" ] || exit 1\n', [
            ("never", '[ -f "$1" ]', "false"), ("always", '[ -f "$1" ]', "true"), ("and/or", "||", "&&"),
            ("command", "exit", ":"),
        ]),
        ('sync "$a"; mv "$a" "$b"\n', [("command", "sync", ":"), ("command", "mv", ":")]),
        ("a || { b; exit 1; }\n", [
            ("command", "a", ":"), ("and/or", "||", "&&"), ("fallback", "{ b; exit 1; }", "true"),
            ("command", "b", ":"), ("command", "exit", ":"),
        ]),
        ("if ! grep -qF 'x y' \"$f\"; then return; fi\n", [
            ("never", "! grep -qF 'x y' \"$f\"", "false"), ("always", "! grep -qF 'x y' \"$f\"", "true"),
            ("not", "! ", ""), ("command", "grep", ":"), ("pattern", "'x y'", "''"), ("command", "return", ":"),
        ]),
        ('if [ "$a" -lt 3 ]; then :; fi\n', [
            ("never", '[ "$a" -lt 3 ]', "false"), ("always", '[ "$a" -lt 3 ]', "true"), ("bound", "-lt", "-le"),
        ]),
        ('case "$a" in x|"y "*) b;; *) ;; esac; [ -n "$c" ]\n', [
            ("arm", "x", "gpunode-fits-nothing"), ("arm", '"y "*', "gpunode-fits-nothing"), ("command", "b", ":"),
            ("arm", "*", "gpunode-fits-nothing"), ("never", '[ -n "$c" ]', "false"), ("always", '[ -n "$c" ]', "true"),
        ]),
        ('a=$(cut -f1 "$b")\n', [("command", "cut", ":")]),
        ('while [ "$a" -lt 3 ]; do b; done\n', [
            ("never", '[ "$a" -lt 3 ]', "false"), ("bound", "-lt", "-le"), ("command", "b", ":"),
        ]),
        ("f() { b; }\n", [("command", "b", ":")]),
    ],
)  # fmt: skip
def test_each_guard_of_a_script_is_put_out_of_order(script: str, found: list[tuple[str, str, str]]) -> None:
    assert sorted(of_shell(script)) == sorted(found)


@pytest.mark.parametrize(
    "script",
    [
        'echo "gpunode: cannot; exit 1 || true" >&2\n',
        "# sync && exit\n",
        "a='x && y; exit'\n",
        "true || :\n",
        "x=1 y=2\n",
    ],
)
def test_what_only_people_read_is_left_as_it_is(script: str) -> None:
    assert [each for each in of_shell(script) if each[0] != "and/or"] == []


def test_every_mutant_of_gpunode_s_shell_is_one_that_sh_reads() -> None:
    """The reader knows as much of sh as these files have: what it takes for a word is one."""
    group = next(group for group in GROUPS if group.name == "trust")
    for path in (
        "templates/scripts/pinned_key.sh",
        "templates/scripts/placing.sh",
        "gpunode/packages/keyring.sh",
        "gpunode/packages/keyrings.sh",
    ):
        found = list(shell_mutants(path, (group.room / path).read_text()))
        assert len(found) > 5
        assert [str(each) for each in found if each.make() is None] == []


def test_the_script_in_a_python_file_is_changed_and_the_rest_of_the_file_is_not() -> None:
    source = (
        'A = f"""\n{B}\nsync "$file" || exit 1\nprintf \'a\\n{{\'\n"""\nC = "no script"\nraise ValueError("a $b; c")\n'
    )
    found = {each.before: each for each in shell_mutants("x.py", source)}
    assert sorted(found) == ["exit", "printf", "sync", "||"]
    made = found["sync"].make()
    assert made is not None and made.endswith('\nC = "no script"\nraise ValueError("a $b; c")\n')
    values: dict[str, str] = {"B": "put in"}
    exec(made.partition("raise")[0], values)
    assert values["A"] == "\nput in\n: \"$file\" || exit 1\nprintf 'a\n{'\n"
    assert found["sync"].texts == (
        "\nsync \"$file\" || exit 1\nprintf 'a\n{'\n",
        "\n: \"$file\" || exit 1\nprintf 'a\n{'\n",
    )


SOURCE = '''"""A module."""

__all__ = ["f"]


@decorated(1)
def f(a: int = 1) -> str:
    """Say a word."""
    if a > 2:
        host.noop("nothing is to be done")
        raise ValueError(f"it is {a + 1}", 3)
    return "word" + f"{a + 5} words"
'''


def test_python_is_changed_by_mutmut_s_operators_and_messages_and_types_are_not() -> None:
    found = told(python_mutants("x.py", SOURCE))
    assert sorted(found) == sorted([
        ("number", "1", "2"),
        ("never", "a > 2", "(a > 2) and False"), ("always", "a > 2", "(a > 2) or True"),
        ("swap_op", "> 2", ">= 2"), ("number", "2", "3"),
        ("statement", 'host.noop("nothing is to be done")', "pass"),
        ("arg_removal", 'host.noop("nothing is to be done")', "host.noop(None)"),
        ("swap_op", '"word" + f"{a + 5} words"', '"word" - f"{a + 5} words"'),
        ("string", '"word"', '"XXwordXX"'),
    ])  # fmt: skip


def test_a_mutant_is_the_file_with_that_change_alone() -> None:
    (mutant,) = (each for each in python_mutants("x.py", SOURCE) if each.after == "(a > 2) or True")
    assert mutant.make() == SOURCE.replace("if a > 2", "if (a > 2) or True")
    assert str(mutant) == "x.py:9: always: a > 2 -> (a > 2) or True"


def test_a_sample_is_the_same_where_other_code_comes_before_it() -> None:
    before = list(python_mutants("x.py", SOURCE))
    after = list(python_mutants("x.py", SOURCE.replace("__all__", "\n\n\n__all__")))
    chosen = [(each.before, each.after) for each in sample(before, "4")]
    assert chosen == [(each.before, each.after) for each in sample(after, "4")]
    assert len(sample(before, "all")) == len(before) and len({each.order for each in before}) == len(before)


def test_the_share_counts_what_no_test_and_no_type_noticed() -> None:
    mutant = Mutant("x.py", 1, "not", "! ", "", lambda: "")
    found = [Judged(mutant, ended, "", "", 0.1) for ended in ("killed", "types", "out of time", "survived")]
    assert share(found) == 25.0 and share([]) == 0.0
    assert row(Group("trust", {}), 9, found, 61.2).split() == [
        "trust", "9", "4", "1", "1", "1", "1", "25.0", "%", "(at", "most", "5", "%,", "61", "s)",
    ]  # fmt: skip


def test_every_file_that_is_mutated_has_tests_that_are_there() -> None:
    for group in GROUPS:
        for path in group.files:
            assert (group.room / path).is_file(), path
            assert group.tests(path)
            assert [test for test in group.tests(path) if not (group.room / test).is_file()] == []


MODULE = """
from functools import cache
TEXT = "one two three four five"
class C:
    @property
    def p(self): return [x + 1 for x in (1, 2)]
@cache
def f(): return "old"
def g(a=1): return a
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    path = tmp_path / "mutated_module.py"
    path.write_text(MODULE)
    made = types.ModuleType("mutated_module")
    made.__file__ = str(path)
    exec(compile(MODULE, str(path), "exec", dont_inherit=True), vars(made))
    monkeypatch.setitem(sys.modules, "mutated_module", made)
    return made


def test_functions_get_their_new_code_wherever_they_are_held(module: types.ModuleType) -> None:
    path, held = str(module.__file__), module.C()
    assert (held.p, module.f()) == ([2, 3], "old")
    for before, after in (("x + 1", "x + 5"), ('"old"', '"new"')):
        pairs = changed_functions(path, MODULE, MODULE.replace(before, after))
        assert pairs is not None and put_in(path, pairs) == 1
    # What was cached by the old code is forgotten.
    assert (held.p, module.f()) == ([6, 7], "new")


@pytest.mark.parametrize(("before", "after"), [("a=1", "a=2"), ("three", "3"), ("class C:", "class C(int):")])
def test_what_is_decided_when_a_module_is_imported_takes_a_new_import(
    module: types.ModuleType, before: str, after: str
) -> None:
    assert changed_functions(str(module.__file__), MODULE, MODULE.replace(before, after)) is None


def test_a_text_is_changed_in_every_module_that_holds_it(tmp_path: Path, module: types.ModuleType) -> None:
    assert put_in_text(str(tmp_path), "two three four five", "2") == 1
    assert module.TEXT == "one 2"


def test_every_file_that_is_mutated_is_changed_where_python_has_imported_it() -> None:
    files = {path for group in GROUPS for path in group.files if path.endswith(".py")}
    for path in files:
        name = path.removeprefix("gpunode/").removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
        module = importlib.import_module(f"gpunode.{name}")
        assert str(CHECKOUT / path) == module.__file__
    assert "operations/apt.py" in files
