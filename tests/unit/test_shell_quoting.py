"""Walk the source: in facts, operations and deploys every value in a shell command is quoted, or is our own constant.

A value is ours where it is written in the source: a literal, or an upper-case name of a module. Everything else came
from a caller, and goes into a command by QuoteString (operations) or shlex.quote (facts) alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(path for folder in ("operations", "facts", "deploys") for path in (ROOT / folder).rglob("*.py"))
# The parts of a command, and functions whose first argument is shell text; their other arguments they quote themselves.
_COMMANDS = {"StringCommand"}
_SHELL_TEXT = {"script_command", "changing_command", "probe_command", "Probe"}
_QUOTES = {"QuoteString", "quote"}
# Where shell text comes as an argument by contract, and the rule is on the callers: (file, function).
_CONTRACT = {
    ("operations/failure.py", "explained_command"),
    ("operations/script.py", "script_command"),
    ("facts/base.py", "probe_command"),
    ("facts/base.py", "changing_command"),
}


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


class _Function:
    """Judge the expressions of one function: which are made of constants and quoted values alone."""

    def __init__(self, body: list[ast.AST]) -> None:
        self.values: dict[str, list[ast.expr]] = {}
        for node in body:
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value is not None:
                self._assign(node.target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.values.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple):
            parts = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            for name, part in zip(target.elts, parts, strict=True):
                self._assign(name, part)

    def safe(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> bool:
        if isinstance(node, ast.Constant):
            return True
        if isinstance(node, ast.Name):
            if node.id.isupper():
                return True
            if node.id in seen or node.id not in self.values:
                return False
            return all(self.safe(value, seen | {node.id}) for value in self.values[node.id])
        if isinstance(node, ast.Attribute):
            # A fact's probe is text of its class, where no caller's value is.
            return node.attr.isupper() or node.attr == "probe"
        if isinstance(node, ast.JoinedStr):
            return all(self.safe(part, seen) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self.safe(node.value, seen)
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.Add) and self.safe(node.left, seen) and self.safe(node.right, seen)
        if isinstance(node, ast.IfExp):
            return self.safe(node.body, seen) and self.safe(node.orelse, seen)
        if isinstance(node, ast.Starred):
            return self.safe(node.value, seen)
        if isinstance(node, ast.GeneratorExp | ast.ListComp):
            known = {name for part in node.generators if _constant(part.iter) for name in _names(part.target)}
            return _Scope(self, known).safe(node.elt, seen)
        if isinstance(node, ast.List | ast.Tuple):
            return all(self.safe(item, seen) for item in node.elts)
        name = _called(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "shlex.join":
            return True
        if isinstance(node, ast.Call) and name in _COMMANDS | {"join"}:
            return all(self.safe(argument, seen) for argument in node.args)
        if isinstance(node, ast.Call) and name in {"Text", "shell_text"}:
            # What stands behind the text are shared questions, which quote what is wanted of them, and values of a
            # file's, which it quotes (gpunode/base/probe.py).
            return self.safe(node.args[0], seen)
        if isinstance(node, ast.Call) and name == "script_file":
            return all(self.safe(argument, seen) for argument in node.args)
        return name in _QUOTES | _SHELL_TEXT or (
            name in {"command", "of_host"} and isinstance(node, ast.Call) and not node.args
        )


class _Scope(_Function):
    """Judge what stands in a comprehension whose variables run over constants."""

    def __init__(self, outer: _Function, known: set[str]) -> None:
        self.values = {**outer.values, **{name: [ast.Constant(name)] for name in known}}


def _constant(node: ast.expr) -> bool:
    """Say whether a comprehension runs over a constant of a module, or its items."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items":
        node = node.func.value
    return isinstance(node, ast.Name) and node.id.isupper()


def _names(target: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _faults(source: str, name: str) -> Iterator[str]:
    """Yield `file:line: what` of every value that reaches a shell command unquoted."""
    tree = ast.parse(source)
    owner = {
        child: function
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef)
        for child in ast.walk(function)
    }
    judges: dict[ast.AST, _Function] = {}
    for node in ast.walk(tree):
        function = owner.get(node)
        scope: ast.AST = function or tree
        if function is not None and (name, function.name) in _CONTRACT:
            continue
        if scope not in judges:
            judges[scope] = _Function(list(ast.walk(scope)))
        judge = judges[scope]
        called = _called(node)
        unsafe: list[ast.expr] = []
        if isinstance(node, ast.Call) and called in _COMMANDS:
            unsafe = [argument for argument in node.args if not judge.safe(argument)]
        elif isinstance(node, ast.Call) and called in _SHELL_TEXT:
            unsafe = [argument for argument in node.args[:1] if not judge.safe(argument)]
        elif isinstance(node, ast.Call) and called in {"shell", "script", "script_template"}:
            # pyinfra's own operations take commands as plain text.
            unsafe = [item.value for item in node.keywords if item.arg == "commands" and not judge.safe(item.value)]
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.JoinedStr | ast.BinOp | ast.Name):
            unsafe = [] if judge.safe(node.value) else [node.value]
        elif isinstance(node, ast.Return) and function is not None and function.name == "command":
            # A fact's command that is put together without probe_command.
            unsafe = [node.value] if node.value is not None and not judge.safe(node.value) else []
        for item in unsafe:
            yield f"{name}:{item.lineno}: {ast.unparse(item)[:80]} reaches a shell command unquoted"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_value_in_a_shell_command_is_quoted(path: Path) -> None:
    assert list(_faults(path.read_text(encoding="utf-8"), str(path.relative_to(ROOT)))) == []


PLANTED = {
    "a value in a command": 'def f(path):\n    yield StringCommand("rm", path)',
    "an f-string in a command": 'def f(path):\n    yield StringCommand(f"rm {path}")',
    "a value by way of a name": 'def f(path):\n    target = f"{path}.new"\n    yield StringCommand("rm", target)',
    "a name that is quoted once only": "def f(a):\n    b = QuoteString(a)\n    b = a\n    yield StringCommand(b)",
    "many values": 'def f(paths):\n    yield StringCommand("rm", *paths)',
    "many values, one by one": 'def f(paths):\n    yield StringCommand("rm", *(path for path in paths))',
    "a value in a script": 'def f(path):\n    yield script_command(f"rm {path}")',
    "a script that is added to": 'def f(path):\n    yield script_command(_BODY + path, "x")',
    "a command as text": 'def f(path):\n    yield f"rm {path}"',
    "a command by format": 'def f(path):\n    yield StringCommand("rm {}".format(path))',
    "a probe": 'def command(self, path):\n    return probe_command(f"cat {path}")',
    "a probe by a name": 'def command(self, path):\n    file = path.strip()\n    return probe_command(f"cat {file}")',
    "a probe without probe_command": 'def command(self, path):\n    return f"cat {path}"',
    "a transaction's script": 'def f(text):\n    yield script_command(text, "x")',
    "parts of a probe": 'def command(self, paths):\n    return Probe([(path, "x") for path in paths])',
    "pyinfra's own operation": 'def f(path):\n    server.shell(name="x", commands=[f"rm {path}"])',
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_fault_is_found(kind: str) -> None:
    assert list(_faults(PLANTED[kind], "planted.py"))
