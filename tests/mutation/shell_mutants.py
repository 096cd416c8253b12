"""Mutants of shell: the guards of a script are put out of order, one at a time.

It knows the words and lists of POSIX shell as far as the scripts that it is asked for have them, here-documents apart.
The operators:

- `and/or`: && becomes ||, || becomes &&
- `fallback`: the group after || becomes true
- `always`, `never`: a test, or the condition of an if, becomes true or false
- `bound`: -lt becomes -le, and so on
- `not`: a ! goes
- `command`: a command does nothing; that is what removes sync, exit, trap and every call of a function
- `arm`: a pattern of a case fits nothing
- `pattern`: grep looks for nothing, which every line has

What is written to standard error is for people, and stays.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tests.mutation.mutant import Mutant, counted

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z_0-9]*=")
_REDIRECTION = re.compile(r"\d*(?:>>|>&|<&|>\||<>|>|<)(?:\d+|-)?")
_OPERATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
_OPENS = {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "in"}
_KEYWORDS = _OPENS | {"fi", "done", "esac", "case", "for", "}"}
_NOTHING = {":", "true", "false", "[", "break"}
_BOUNDS = {"-lt": "-le", "-le": "-lt", "-gt": "-ge", "-ge": "-gt"}
_FITS_NOTHING = "gpunode-fits-nothing"
# Stands where Python puts a text into the script: one character each, which no script has.
_PUT_IN = 0xE000
_FOUND_BY = 20
_HAS_SHELL = re.compile(r"\$[\w{(@*?#]|\n\s*[a-z]")


@dataclass(frozen=True)
class Token:
    """Hold a word, an operator, or a redirection (without its target)."""

    kind: str
    start: int
    end: int
    text: str


@dataclass
class _Reader:
    """Read a script into lists of tokens: one of the script itself, and one of each command substitution."""

    text: str
    lists: list[list[Token]] = field(default_factory=list)

    def read(self, start: int, closing: str | None) -> int:
        """Read from `start` to the unmatched `closing`, or to the end; return where that is."""
        tokens: list[Token] = []
        self.lists.append(tokens)
        at, depth, cases = start, 0, []
        while at < len(self.text):
            character = self.text[at]
            if character in " \t" or self.text.startswith("\\\n", at):
                at += 1 if character in " \t" else 2
                continue
            if character == "#":
                at = (self.text + "\n").find("\n", at)
                continue
            redirection = _REDIRECTION.match(self.text, at)
            if redirection:
                tokens.append(Token("redirection", at, redirection.end(), redirection.group()))
                at = redirection.end()
                continue
            operator = next((each for each in _OPERATORS if self.text.startswith(each, at)), None)
            if operator is None:
                end = self._word(at)
                word = self.text[at:end]
                tokens.append(Token("word", at, end, word))
                if word == "case":
                    cases.append("subject")
                elif cases and word == "in" and cases[-1] == "subject":
                    cases[-1] = "pattern"
                elif cases and word == "esac" and cases[-1] == "pattern":
                    cases.pop()
                at = end
                continue
            if operator == ")" and cases and cases[-1] == "pattern":
                cases[-1] = "commands"
                tokens.append(Token("arm", at, at + 1, ")"))
                at += 1
                continue
            if operator == ")" and depth == 0 and closing == ")":
                return at
            depth += {"(": 1, ")": -1}.get(operator, 0)
            if operator == ";;" and cases:
                cases[-1] = "pattern"
            tokens.append(Token("operator", at, at + len(operator), operator))
            at += len(operator)
        return at

    def _word(self, at: int) -> int:
        while at < len(self.text):
            character = self.text[at]
            if character in " \t" or any(self.text.startswith(each, at) for each in (*_OPERATORS, "<", ">")):
                break
            at = self._piece(at)
        return at

    def _piece(self, at: int) -> int:
        """Return the end of one character, quoted text or expansion."""
        text = self.text
        if text[at] == "\\":
            return at + 2
        if text[at] == "'":
            return text.index("'", at + 1) + 1
        if text[at] == '"':
            at += 1
            while text[at] != '"':
                at = self._piece(at) if text[at] in "\\$" else at + 1
            return at + 1
        if text.startswith("$((", at):
            return text.index("))", at) + 2
        if text.startswith("$(", at):
            return self.read(at + 2, ")") + 1
        if text.startswith("${", at):
            at += 2
            while text[at] != "}":
                at = self._piece(at)
            return at + 1
        return at + 1


@dataclass(frozen=True)
class Change:
    """Hold what comes in place of a part of a script."""

    operator: str
    start: int
    end: int
    after: str


def changes(script: str) -> Iterator[Change]:
    """Yield every change of a script's guards."""
    reader = _Reader(script)
    reader.read(0, None)
    for tokens in reader.lists:
        yield from _of_list(tokens)


def _of_list(tokens: list[Token]) -> Iterator[Change]:
    opens, pattern = True, False
    whole: set[int] = set()
    for number, token in enumerate(tokens):
        if token.kind == "operator":
            opens = token.text != "(" or not _defines(tokens, number)
            pattern = token.text == ";;" or (pattern and token.text == "\n")
            pattern = pattern or (token.text == "|" and _is_pattern(tokens, number))
            if token.text in ("&&", "||"):
                yield Change("and/or", token.start, token.end, {"&&": "||", "||": "&&"}[token.text])
            if token.text == "||" and number + 1 < len(tokens) and tokens[number + 1].text == "{":
                yield Change("fallback", tokens[number + 1].start, _closing(tokens, number + 1), "true")
            continue
        if token.kind == "arm":
            opens, pattern = True, False
            continue
        if token.kind == "redirection":
            continue
        if _is_target(tokens, number):
            continue
        if token.text == "in" and not opens:
            opens, pattern = False, _subject(tokens, number)
            continue
        if pattern and token.text == "esac":
            opens, pattern = False, False
            continue
        if pattern:
            yield Change("arm", token.start, token.end, _FITS_NOTHING)
            continue
        if token.text in _BOUNDS:
            yield Change("bound", token.start, token.end, _BOUNDS[token.text])
        if not opens:
            continue
        if token.text in ("if", "elif", "while", "until"):
            first, last = _condition(tokens, number)
            yield from _conditions(token.text, tokens[first : last + 1])
            if _simple_end(tokens, first) == last:
                whole.add(first)
            continue
        if token.text == "!":
            yield Change("not", token.start, tokens[number + 1].start, "")
            continue
        if token.text in _KEYWORDS:
            opens = token.text in _OPENS
            if token.text in ("case", "for"):
                opens = False
            continue
        if _ASSIGNMENT.match(token.text):
            continue
        opens = False
        if number in whole:
            continue
        if token.text == "[":
            end = tokens[_simple_end(tokens, number)].end
            yield Change("never", token.start, end, "false")
            if not _in_loop(tokens, number):
                yield Change("always", token.start, end, "true")
            continue
        yield from _of_command(tokens, number)


def _of_command(tokens: list[Token], number: int) -> Iterator[Change]:
    token, end = tokens[number], _simple_end(tokens, number)
    if token.text in _NOTHING or _defines(tokens, number + 1) or any(ord(each) >= _PUT_IN for each in token.text):
        return
    words = tokens[number : end + 1]
    if token.text in ("echo", "printf") and any(each.text == ">&2" for each in words):
        return
    yield Change("command", token.start, token.end, ":")
    if token.text == "grep":
        sought = next((each for each in words[1:] if each.kind == "word" and not each.text.startswith("-")), None)
        if sought is not None:
            yield Change("pattern", sought.start, sought.end, "''")


def _conditions(keyword: str, tokens: list[Token]) -> Iterator[Change]:
    start, end = tokens[0].start, tokens[-1].end
    yield Change("never", start, end, "true" if keyword == "until" else "false")
    if keyword in ("if", "elif") and tokens[0].text != "true":
        yield Change("always", start, end, "true")


def _condition(tokens: list[Token], number: int) -> tuple[int, int]:
    """Return the first and the last token of a condition."""
    depth, at = 0, number + 1
    while tokens[at].text not in ("then", "do") or depth:
        depth += {"if": 1, "while": 1, "fi": -1, "done": -1}.get(tokens[at].text, 0)
        at += 1
    last = at - 1
    while tokens[last].text in (";", "\n"):
        last -= 1
    return number + 1, last


def _simple_end(tokens: list[Token], number: int) -> int:
    """Return the last token of the simple command that begins here."""
    at = number
    while at + 1 < len(tokens) and tokens[at + 1].kind in ("word", "redirection") and tokens[at + 1].text != "}":
        at += 1
    return at


def _closing(tokens: list[Token], number: int) -> int:
    """Return where the group ends that is opened here."""
    depth = 0
    for token in tokens[number:]:
        depth += {"{": 1, "}": -1}.get(token.text, 0) if token.kind == "word" else 0
        if depth == 0:
            return token.end
    raise ValueError("a group is never closed")


def _defines(tokens: list[Token], number: int) -> bool:
    return [each.text for each in tokens[number : number + 2]] == ["(", ")"]


def _is_target(tokens: list[Token], number: int) -> bool:
    before = tokens[number - 1] if number else None
    return before is not None and before.kind == "redirection" and before.text[-1] in "<>|"


def _is_test(tokens: list[Token], number: int) -> bool:
    return tokens[number].text == "["


def _in_loop(tokens: list[Token], number: int) -> bool:
    """Say whether this is part of the condition of a loop, which would never end."""
    for token in reversed(tokens[:number]):
        if token.text in ("do", "then", "\n"):
            return False
        if token.text in ("while", "until"):
            return True
    return False


def _subject(tokens: list[Token], number: int) -> bool:
    """Say whether this `in` is that of a case, not of a for."""
    for token in reversed(tokens[:number]):
        if token.text in ("case", "for"):
            return token.text == "case"
    return False


def _is_pattern(tokens: list[Token], number: int) -> bool:
    """Say whether this | stands between two patterns of a case: an arm's bracket is to come, and no end of a line."""
    before = number >= 2 and (tokens[number - 2].text in (";;", "in", "\n", "|"))
    for token in tokens[number:]:
        if token.kind == "arm":
            return bool(before)
        if token.text in ("\n", ";", ";;", "&&", "||"):
            return False
    return False


def is_shell(script: str) -> bool:
    """Say whether sh can read this."""
    done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=False)
    return done.returncode == 0


def shell_mutants(path: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a shell file, or of the scripts in a Python file."""
    yield from counted(_of_python(path, source) if path.endswith(".py") else _of_shell(path, source))


def _of_shell(path: str, source: str) -> Iterator[Mutant]:
    for change in changes(source):
        line = source.count("\n", 0, change.start) + 1
        before = source[change.start : change.end]
        texts = _without_comments(source), _without_comments(_changed(source, change))
        yield Mutant(path, line, change.operator, before, change.after, partial(_made, source, change), texts)


def _without_comments(source: str) -> str:
    """Return what gpunode sends of a shell file (gpunode/base/shell_file.py)."""
    return "\n".join(line for line in source.splitlines() if line.strip() and not line.lstrip().startswith("#"))


def _of_python(path: str, source: str) -> Iterator[Mutant]:
    for node in _strings(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else [node]
        script = ""
        put_in: list[str] = []
        for part in parts:
            if isinstance(part, ast.Constant):
                script += str(part.value)
            else:
                script += chr(_PUT_IN + len(put_in))
                put_in.append(ast.unparse(ast.JoinedStr([part])))
        if not _HAS_SHELL.search(script):
            continue
        lines = source.splitlines(keepends=True)
        start = _offset(lines, node.lineno, node.col_offset)
        end = _offset(lines, node.end_lineno or 0, node.end_col_offset or 0)
        for change in changes(script):
            line = node.lineno + script.count("\n", 0, change.start)
            make = partial(_made, script, change, partial(_in_file, source[:start], source[end:], put_in))
            texts = _part(script, change)
            yield Mutant(path, line, change.operator, script[change.start : change.end], change.after, make, texts)


def _part(script: str, change: Change) -> tuple[str, str] | None:
    """Return the text around a change, up to what Python puts in; None where it is too short to be found by."""
    held = re.compile(f"[{chr(_PUT_IN)}-{chr(_PUT_IN + 0xFF)}]")
    start = max((each.end() for each in held.finditer(script) if each.end() <= change.start), default=0)
    end = min((each.start() for each in held.finditer(script) if each.start() >= change.end), default=len(script))
    before = script[start:end]
    after = script[start : change.start] + change.after + script[change.end : end]
    return (before, after) if len(before) >= _FOUND_BY and not held.search(before) else None


def _changed(script: str, change: Change) -> str:
    return script[: change.start] + change.after + script[change.end :]


def _made(script: str, change: Change, in_file: Callable[[str], str] = str) -> str | None:
    changed = _changed(script, change)
    return in_file(changed) if is_shell(changed) else None


def _in_file(head: str, tail: str, put_in: list[str], script: str) -> str:
    """Return a Python file with a script in it, with what Python puts into that."""
    parts = re.split(f"([{chr(_PUT_IN)}-{chr(_PUT_IN + 0xFF)}])", script)
    pieces = (put_in[ord(part) - _PUT_IN] if number % 2 else repr(part) for number, part in enumerate(parts))
    return f"{head}({' + '.join(pieces)}){tail}"


def _strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield the strings of a module but for those that only people read: docstrings, and what is raised."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            yield node
        else:
            yield from _strings(node)


def _offset(lines: list[str], line: int, column: int) -> int:
    """Return the place of a line and a column of ast's, which counts bytes."""
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())
