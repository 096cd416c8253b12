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
STARTS = {"run", "Popen", "check_output", "check_call", "call", "run_in", "execute"}
# README names these as what a user brings; debootstrap's base of Debian and Ubuntu has the rest.
BROUGHT = {"make", "git", "python3", "python3-venv"}
# Programs that run on a node or in a chroot, that a test makes itself, or whose tests skip without them.
ELSEWHERE = {
    "age-keygen", "ansible-playbook", "ctr", "docker", "gcc", "helm", "kubectl", "modprobe", "molecule", "nvidia-smi",
    "pyinfra", "rmmod", "strace", "uv",
    # Words of lists that are no commands.
    "curl", "file", "mig", "node",
}  # fmt: skip


def _programs() -> dict[str, set[str]]:
    """Return program -> files that start it: the first word of a command's list, and shells such as `busybox sh`."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(path for room in ("tests", "lab") for path in (ROOT / room).rglob("*.py")):
        if {"real", "bench", "vm", "simulated"} & set(path.parts):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words = []
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"\w+ sh", node.value):
                words = [node.value.split()[0]]
            elif isinstance(node, ast.Call) and node.args:
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                first = node.args[0]
                if name.strip("_") in STARTS and isinstance(first, ast.List) and first.elts:
                    words = [str(each.value) for each in first.elts[:1] if isinstance(each, ast.Constant)]
            elif isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant):
                # A command that is started elsewhere; other lists begin with no program of this machine.
                words = [word for word in [str(node.elts[0].value)] if shutil.which(word)]
            for word in words:
                found[Path(str(word)).name].add(str(path.relative_to(ROOT)))
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
    programs = _programs()
    assert {"busybox", "podman", "openssl", "ssh-keygen"} <= set(programs)
    packages = _packages_of(set(programs))
    lacking = {
        program: (packages.get(program, "not on this machine"), sorted(files)[:3])
        for program, files in sorted(programs.items())
        if program not in ELSEWHERE and not program.startswith("-") and packages.get(program) not in known
    }
    assert lacking == {}, "add the package to LAB_PACKAGES in the Makefile"
