"""The Makefile installs each program that the tests and the lab start, and nobody's machine hides a missing one."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]
STARTS = {"run", "Popen", "check_output", "check_call", "call", "run_in", "execute", "which"}
# README names these as what a user brings; debootstrap's base of Debian and Ubuntu has the rest.
BROUGHT = {"make", "git", "python3", "python3-venv"}
# Programs that run on a node or in a chroot, that a test makes itself, or whose tests skip without them.
ELSEWHERE = {
    "age", "age-keygen", "ansible-playbook", "chromium", "ctr", "docker", "go", "helm", "kubectl", "modprobe",
    "molecule", "nvidia-smi", "pyinfra", "rmmod", "rpm", "rpmbuild", "sops", "strace", "uv",
    # Arguments of a test's own function of such a name.
    "crio", "drift", "mig",
}  # fmt: skip


def _lists(tree: ast.AST) -> dict[str, list[ast.List]]:
    """Return variable -> the lists that are assigned to it anywhere in a file."""
    found: dict[str, list[ast.List]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found[target.id].append(node.value)
    return found


def _programs(text: str) -> set[str]:
    """Return the programs that a file starts: first words of commands, and shells such as `busybox sh`."""
    found: set[str] = set()
    tree = ast.parse(text)
    lists = _lists(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"\w+ sh", node.value):
            found.add(node.value.split()[0])
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name.strip("_") not in STARTS:
            continue
        for given in (*node.args[:1], *(word.value for word in node.keywords if word.arg == "args")):
            commands = [given] if isinstance(given, ast.List) else lists.get(getattr(given, "id", ""), [])
            words = [command.elts[0] for command in commands if command.elts]
            found |= {Path(word.value).name for word in words
                      if isinstance(word, ast.Constant) and isinstance(word.value, str)}  # fmt: skip
    return found


@cache
def _installed() -> dict[str, tuple[bool, list[str]]]:
    """Return package -> whether it is in every system, and the packages that it depends on."""
    form = "${Package}\t${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\n"
    done = subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        name, essential, priority, depends = line.split("\t")
        names = [re.split(r"[\s(:|]", each.strip(), maxsplit=1)[0] for each in re.split(r"[,|]", depends)]
        found[name] = essential == "yes" or priority in ("required", "important"), [each for each in names if each]
    return found


def _brought_along(roots: set[str]) -> set[str]:
    """Return these packages, those of every system, and all that they depend on."""
    installed = _installed()
    todo = [*roots, *(name for name, (is_everywhere, _) in installed.items() if is_everywhere)]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in installed and name not in found:
            found.add(name)
            todo += installed[name][1]
    return found


def _packages_of(programs: set[str]) -> dict[str, str]:
    """Return program -> its package, of those that are on this machine."""
    paths: dict[str, str] = {}
    for program in programs:
        if (path := shutil.which(program)) is not None:
            paths |= dict.fromkeys((path, str(Path(path).resolve()), path.replace("/usr/", "/", 1)), program)
    done = subprocess.run(["dpkg", "-S", *paths], capture_output=True, text=True, check=False)
    rows = (line.split(": ", 1) for line in done.stdout.splitlines() if not line.startswith("diversion"))
    return {paths[path]: package.partition(":")[0] for package, path in rows if path in paths}


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="needs dpkg")
def test_each_program_that_is_started_is_of_a_package_that_the_makefile_installs() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    lists = dict(re.findall(r"^(\w+)_PACKAGES := (.*)$", makefile, re.MULTILINE))
    roots = set(lists["LAB"].split())
    known = _brought_along(BROUGHT | roots)
    programs: dict[str, set[str]] = defaultdict(set)
    for path in sorted(path for room in ("tests", "lab") for path in (ROOT / room).rglob("*.py")):
        if not {"real", "bench", "vm", "simulated"} & set(path.parts):
            for program in _programs(path.read_text(encoding="utf-8")):
                programs[program].add(str(path.relative_to(ROOT)))
    assert {"busybox", "podman", "openssl", "ssh-keygen"} <= set(programs)
    packages = _packages_of(set(programs))
    lacking = {
        program: (packages.get(program, "not on this machine"), sorted(files)[:3])
        for program, files in sorted(programs.items())
        if program not in ELSEWHERE and not program.startswith("-") and packages.get(program) not in known
    }
    assert lacking == {}, "add the package to LAB_PACKAGES in the Makefile"


@pytest.mark.parametrize(
    "text",
    ["run(['absent', 'x'])", "subprocess.run(args=['absent'])", "line = ['absent']\nPopen(line)", "S = ('absent sh',)"],
)
def test_a_program_is_seen_however_its_command_is_written(text: str) -> None:
    assert _programs(text) == {"absent"}
