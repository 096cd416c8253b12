"""Break the product on purpose: `python -m tests.mutation [--number N] [--draw FILE]`.

Draws changes of one place each (mutmut's operators for Python, a handful for shell) in what gpunode promises most, and
runs for each the unit tests that import the changed module, nearest first. A change that no test notices is a survivor:
a test is missing, or the change is none. The draw is the same while those files are; `--draw` keeps it in a file, so
that other tests can be held against the same changes. It runs in a copy of the checkout. Exit status 1: more survived
than MOST. mutmut's own runner knows neither shell nor tests that start a program.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

CHECKOUT = Path(__file__).parents[1]
KINDS = {
    "preflight": ("gpunode/node/preflight/*.py",),
    "decide": ("gpunode/**/decide*.py",),
    "transactions": ("templates/scripts/transaction*.sh", "templates/scripts/placing.sh", "operations/transaction.py"),
    "trust": (
        "gpunode/packages/apt_trust.py", "gpunode/packages/trust.py", "operations/repositories.py",
        "templates/scripts/*trust.sh", "templates/scripts/pinned_key.sh", "templates/scripts/swap.sh",
    ),
    "drain": ("gpunode/kubernetes/drain/*.py",),
    "settings": ("gpunode/settings/*.py",),
}  # fmt: skip
NUMBER = 120
# Per cent of the draw.
MOST = 15
# Seconds of tests for one change, by tests/unit/seconds.tsv; after how many a change hangs.
_SECONDS, _UNKNOWN, _HANGS = 20.0, 0.5, 900
# Most changes are noticed by the tests that are run first.
_NEAREST = 4
# All tests passed, or none of them was to run.
_GOOD = (0, 5)
_MARKS = "not node and not tier2 and not tier3"
_CASES = "tests.unit.test_cases"
# Functions by which a module names its scripts.
_READ_SCRIPTS = ("script_file", "shell_file", "shell_text")
_SHELL = (
    (r"&&", "||"), (r"\|\|", "&&"), (r"(?<=\bif )[^;\n]+(?=; then)", "true"), (r"(?<=\bif )[^;\n]+(?=; then)", "false"),
    (r"\[ [^\]\n]+ \]", "true"), (r"\[ [^\]\n]+ \]", "false"), (r"-lt\b", "-le"), (r"-gt\b", "-ge"), (r"! (?=\S)", ""),
    (r"(?m)^ *(mv|rm|cp|sync|trap|exit|chmod|chown|systemctl|return|cat|gpg|touch)\b", ":"),
)  # fmt: skip
# Line, what is changed, and what makes the changed file: None where that would be none of its language.
Change = tuple[int, str, Callable[[], str | None]]


def shell_changes(source: str) -> Iterator[Change]:
    """Yield each change of a script's guards and commands; what it writes for people is left as it is."""
    for pattern, by in _SHELL:
        for found in re.finditer(pattern, source):
            begin = source.rfind("\n", 0, found.start()) + 1
            if "#" in source[begin : found.start()] or ">&2" in source[begin:].partition("\n")[0]:
                continue
            changed, line = source[: found.start()] + by + source[found.end() :], source.count("\n", 0, found.start())
            yield line + 1, f"{found.group().strip()} -> {by}", partial(_shell, changed)


def _shell(script: str) -> str | None:
    done = subprocess.run(["sh", "-n"], input=script, text=True, capture_output=True, check=False)
    return None if done.returncode else script


def python_changes(source: str) -> Iterator[Change]:
    """Yield each change of a module by mutmut's operators; texts, annotations and decorators are left as they are."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    places = _Places()
    wrapper.visit(places)
    for line, node, mutated in places.found:
        before, after = (wrapper.module.code_for_node(each).strip() for each in (node, mutated))
        if before != after:
            yield line, f"{before} -> {after}", partial(_python, wrapper.module, node, mutated)


def _python(module: cst.Module, node: cst.CSTNode, mutated: cst.CSTNode) -> str | None:
    changed = module.deep_replace(node, mutated)
    assert isinstance(changed, cst.Module)
    try:
        compile(changed.code, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return changed.code


class _Places(cst.CSTVisitor):
    """Collect (line, node, what comes in its place)."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, cst.CSTNode, cst.CSTNode]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Annotation | cst.Decorator | cst.Import | cst.ImportFrom | cst.Raise | cst.BaseString):
            return False
        place = self.get_metadata(PositionProvider, node, None)
        for kind, operator in mutation_operators:
            if place and isinstance(node, kind):
                self.found += [(place.start.line, node, mutated) for mutated in operator(node)]
        if place and isinstance(node, cst.If):
            test = node.test.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
            for join, constant in ((cst.And(), "False"), (cst.Or(), "True")):
                self.found.append((place.start.line, node.test, cst.BooleanOperation(test, join, cst.Name(constant))))
        return True


def draw(root: Path, number: int) -> list[dict[str, Any]]:
    """Return changes, as many of each kind."""
    found: list[dict[str, Any]] = []
    for kind, patterns in KINDS.items():
        files = sorted({str(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)})
        chance, enough = random.Random(kind), len(found) + -(-number // len(KINDS))
        changes = {}
        for file in files:
            changes[file] = list((shell_changes if file.endswith(".sh") else python_changes)((root / file).read_text()))
            chance.shuffle(changes[file])
        while len(found) < enough and any(changes.values()):
            file = chance.choice([file for file in changes if changes[file]])
            line, what, make = changes[file].pop()
            if text := make():
                found.append({"path": file, "line": line, "what": what, "text": text})
    return found


class Imports:
    """Which modules of the product each test file reaches, and how near."""

    def __init__(self, root: Path) -> None:
        """Read what the product's and the tests' modules import, and which scripts they name."""
        self._users: dict[str, set[str]] = defaultdict(set)
        rooms = ("gpunode", "facts", "operations", "deploys", "tests")
        for path in [path for room in rooms for path in (root / room).rglob("*.py")]:
            for used in self._used(path):
                self._users[used].add(_module(str(path.relative_to(root))))
        for folder in (root / "tests" / "cases").glob("*"):
            self._users[folder.name.rpartition(".")[0]].add(_CASES)

    @staticmethod
    def _used(path: Path) -> set[str]:
        used = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                used |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _READ_SCRIPTS:
                names = [each.value for each in node.args if isinstance(each, ast.Constant)]
                used |= {f"{str(name).rpartition('/')[2]}.sh" for name in names}
        return used

    def near(self, path: str, seconds: dict[str, float]) -> list[str]:
        """Return the test files that reach a file, the nearest and quickest first, as far as the time goes."""
        name = path.rpartition("/")[2] if path.endswith(".sh") else _module(path)
        edge, distance = {name}, {name: 0}
        while edge:
            edge = {user for each in edge for user in self._users[each]} - distance.keys()
            distance |= dict.fromkeys(edge, max(distance.values()) + 1)
        files = {each: each.removeprefix("tests.unit.").replace(".", "/") + ".py" for each in distance}
        took = {
            each: seconds.get(files[each], _UNKNOWN) for each in distance if re.match(r"tests\.unit\..*\btest_", each)
        }
        chosen: list[str] = []
        left = _SECONDS
        # A test file that is called after this one goes first.
        namesake = re.split(r"[_.]", path.rpartition("/")[2])[0]
        for each in sorted(took, key=lambda one: (f"test_{namesake}" not in one, distance[one], took[one], one)):
            # Most of what a module decides is in the cases, whatever they take together.
            if took[each] <= left or each == _CASES:
                left -= took[each]
                chosen.append(f"tests/unit/{files[each]}")
        return chosen


def _module(path: str) -> str:
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return re.sub(r"^(facts|operations|deploys)\b", r"gpunode.\1", name)


def run_tests(root: Path, *words: str) -> tuple[int, str]:
    """Return pytest's exit status, and what it printed; what hangs has failed."""
    line = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "-m", _MARKS, *words]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            line, cwd=root, env=environment, capture_output=True, text=True, timeout=_HANGS, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, ""
    return done.returncode, done.stdout + done.stderr


def survives(root: Path, change: dict[str, Any], tests: list[str]) -> bool:
    """Say whether all these tests pass with a change in place."""
    path = root / change["path"]
    before = path.read_text()
    path.write_text(change["text"])
    try:
        parts = [some for some in (tests[:_NEAREST], tests[_NEAREST:]) if some]
        return all(run_tests(root, "-x", *some)[0] in _GOOD for some in parts)
    finally:
        path.write_text(before)


def main(arguments: list[str]) -> int:
    """Print how each change ends, and the counts."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--number", type=int, default=NUMBER)
    parser.add_argument("--draw", type=Path, help="file to read the changes from, or to write them to")
    chosen = parser.parse_args(arguments)
    kept = chosen.draw and chosen.draw.exists()
    changes = json.loads(chosen.draw.read_text()) if kept else draw(CHECKOUT, chosen.number)
    if chosen.draw and not kept:
        chosen.draw.write_text(json.dumps(changes))
    rows = [line.split("\t") for line in (CHECKOUT / "tests/unit/seconds.tsv").read_text().splitlines()]
    seconds, survived = {file: float(took) for tier, file, took in rows if tier == "1"}, 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "checkout"
        shutil.copytree(CHECKOUT, root, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        imports = Imports(root)
        tests = [imports.near(change["path"], seconds) for change in changes]
        everything = sorted(set().union(*tests))
        status, printed = run_tests(root, "--continue-on-collection-errors", *everything)
        if status not in (*_GOOD, 1, 2) or not printed:
            raise SystemExit(f"pytest could not run the tests: {printed}")
        red = set(re.findall(r"^(?:FAILED|ERROR) ([^:\s]+)", printed, re.MULTILINE))
        print("".join(f"left out, as it fails without a change: {file}\n" for file in sorted(red)), end="", flush=True)
        for number, (change, some) in enumerate(zip(changes, tests, strict=True), 1):
            survived += (ends_well := survives(root, change, [file for file in some if file not in red]))
            how = "survived" if ends_well else "noticed"
            print(f"{number} {how}: {change['path']}:{change['line']}: {change['what'][:200]!r}", flush=True)
    print(f"{len(changes)} changes, {len(changes) - survived} noticed, {survived} survived")
    return 1 if not changes or survived * 100 > MOST * len(changes) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
