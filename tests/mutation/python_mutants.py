"""Mutants of Python: mutmut's operators on each place of a file, and two of our own for guards.

mutmut itself leaves out what a decorator stands on (every operation, every property) and what is no function's (the
shell), and keeps all mutants in one file behind a switch, which a test that starts a program does not reach. So its
operators alone are used. What is not mutated, by rule:

- annotations, decorators, docstrings, `__all__`, the arguments of `len` and `isinstance` (as mutmut has it)
- messages: a text with a blank in it, and what is put into one; the arguments of what is raised
- of a string's mutations (other text, upper case, lower case) all but the first
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

from tests.mutation.mutant import Mutant, counted

_NOT_THEIR_ARGUMENTS = {"len", "isinstance"}


def python_mutants(path: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a Python file."""
    yield from counted(_mutants(path, source))


def _mutants(path: str, source: str) -> Iterator[Mutant]:
    wrapper = MetadataWrapper(cst.parse_module(source))
    places = _Places()
    wrapper.visit(places)
    for line, operator, node, mutated in places.actual:
        before, after = (wrapper.module.code_for_node(each).strip() for each in (node, mutated))
        if before != after:
            yield Mutant(path, line, operator, before, after, partial(_made, path, wrapper.module, node, mutated))


def _made(path: str, module: cst.Module, node: cst.CSTNode, mutated: cst.CSTNode) -> str | None:
    tree = module.deep_replace(node, mutated)
    assert isinstance(tree, cst.Module)
    try:
        compile(tree.code, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return tree.code


class _Places(cst.CSTVisitor):
    """Collect (line, operator, node, what comes in its place)."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.actual: list[tuple[int, str, cst.CSTNode, cst.CSTNode]] = []
        self._raised: set[cst.CSTNode] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Raise):
            self._raised |= {node.exc} if node.exc else set()
        if node in self._raised or _left_out(node):
            return False
        position = self.get_metadata(PositionProvider, node, None)
        line = position.start.line if position else 0
        self.actual += ((line, operator, place, mutated) for operator, place, mutated in _mutated(node))
        return True


def _left_out(node: cst.CSTNode) -> bool:
    match node:
        case cst.Annotation() | cst.Decorator() | cst.Import() | cst.ImportFrom():
            return True
        case cst.Call(func=cst.Name(value=name)) if name in _NOT_THEIR_ARGUMENTS:
            return True
        case cst.SimpleString() | cst.ConcatenatedString() | cst.FormattedString():
            return any(character.isspace() for character in _said(node))
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value="__all__"))]):
            return True
        case cst.Param(default=default) if default is not None:
            return not isinstance(default, cst.Name | cst.BaseNumber | cst.BaseString)
        case cst.SimpleStatementLine(body=[cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString())]):
            return True
    return False


def _said(node: cst.BaseExpression | cst.BaseFormattedStringContent) -> str:
    """Return the text of a string as it stands in the source, without what is put into it."""
    match node:
        case cst.SimpleString():
            return str(node.evaluated_value)
        case cst.ConcatenatedString():
            return _said(node.left) + _said(node.right)
        case cst.FormattedString():
            return "".join(_said(part) for part in node.parts)
        case cst.FormattedStringText():
            return node.value
    return ""


def _mutated(node: cst.CSTNode) -> Iterator[tuple[str, cst.CSTNode, cst.CSTNode]]:
    """Yield (operator, what is replaced, by what)."""
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            found: Sequence[cst.CSTNode] = list(operator(node))
            name = operator.__name__.removeprefix("operator_")
            yield from ((name, node, mutated) for mutated in (found[:1] if operator is operator_string else found))
    if isinstance(node, cst.If):
        test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        yield "never", node.test, cst.BooleanOperation(test, cst.And(), cst.Name("False"))
        yield "always", node.test, cst.BooleanOperation(test, cst.Or(), cst.Name("True"))
    if isinstance(node, cst.Expr) and isinstance(node.value, cst.Call | cst.Yield):
        yield "statement", node, cst.Pass()
