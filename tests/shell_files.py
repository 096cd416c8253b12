"""`python -m tests.shell_files`: shellcheck on every shell file that goes to nodes, and the grammar as each sh has it.

A probe runs under whatever sh a node has. A sh that this machine lacks is named, and its look is left out. Shell in
Python is seen by nobody, so that no more than a few lines of it may stand there.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
SHELLCHECK = Path(sys.executable).parent / "shellcheck"
SHELLS = (("dash",), ("bash", "--posix"), ("busybox", "sh"))
_WIDTH = 120
_MOST_LINES = 5
_IS_SHELL = re.compile(
    r"(^|;) *(fi|done|esac)\b|^ *\w+\(\) [{(]|^ *(if|for|while|case) .*(;|$)|\$[({]|\"\$", re.MULTILINE
)
# What they change is undone where they find no room; questions, and what undoes, have to succeed on a full disk, too.
_MAY_WANT_ROOM = ("mig", "runtime", "smoke_crictl")
# dash and busybox end by a signal without their words at the exit, and PIPE comes to a question where a connection was
# cut off. A question is to leave nothing; some of what changes a node leaves temporary files then.
_CHANGES = {"templates", "operations"}
_AT_EXIT, _BY_SIGNAL = re.compile(r"\btrap .* EXIT\b"), re.compile(r"\btrap '[^']+' HUP INT TERM PIPE\b")
_HERE_DOCUMENT = re.compile(r"<<-?\s*['\"]?[A-Za-z_]")


def files(root: Path = CHECKOUT) -> list[Path]:
    """Return every shell file of gpunode/, operations/ and templates/, and what the tests ask of a machine."""
    rooms = ("gpunode", "operations", "templates", "tests/hardware")
    return sorted(path for room in rooms for path in (root / room).rglob("*.sh"))


def faults(path: Path, shells: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield what these shells, shellcheck and the rules of this project have against a file."""
    for shell in shells:
        done = subprocess.run([*shell, "-n", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"{path}: {' '.join(shell)}: {done.stderr.strip()}"
    if SHELLCHECK.exists():
        done = subprocess.run([SHELLCHECK, "--shell=sh", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            yield done.stdout.strip() or done.stderr.strip()
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        if _HERE_DOCUMENT.search(line) and path.stem not in _MAY_WANT_ROOM:
            yield f"{path}:{number}: a here-document: bash before 5.1 needs a file for it, which a full disk refuses"
    text = "\n".join(lines)
    if not _CHANGES & {*_below(path).parts} and _AT_EXIT.search(text) and not _BY_SIGNAL.search(text):
        yield f"{path}: it clears up at its exit alone: what a signal ends leaves all; trap HUP INT TERM PIPE, too"
    yield from (f"{path}:{number}: longer than {_WIDTH}" for number, line in enumerate(lines, 1) if len(line) > _WIDTH)
    if not lines or not lines[0].startswith("# "):
        yield f"{path}: it does not begin with a comment that says what it prints and takes"


def _below(path: Path) -> Path:
    return path.relative_to(CHECKOUT) if path.is_relative_to(CHECKOUT) else path


def shell_strings(path: Path) -> Iterator[str]:
    """Yield where a Python file has shell in a string of more lines than may be."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (parts | docs):
            text = node.value
        else:
            continue
        lines = len(text.strip().splitlines())
        if lines > _MOST_LINES and _IS_SHELL.search(text):
            yield f"{path}:{node.lineno}: {lines} lines of shell in Python: make a file of them"


def main() -> int:
    """Print every fault; the exit status says whether there is one."""
    shells = [shell for shell in SHELLS if shutil.which(shell[0])]
    for shell in SHELLS:
        if shell not in shells:
            print(f"{shell[0]} is not on this machine: no shell file was shown to it")
    if not SHELLCHECK.exists():
        print("shellcheck is not on this machine: no shell file was shown to it")
    found = [fault for path in files() for fault in faults(path, shells)]
    rooms = ("gpunode", "facts", "operations", "deploys")
    found += [
        fault for room in rooms for path in sorted((CHECKOUT / room).rglob("*.py")) for fault in shell_strings(path)
    ]
    print("\n".join(found) or f"{len(files())} shell files: nothing to be said against them")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
