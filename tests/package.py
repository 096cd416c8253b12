"""`python -m tests.package`: install gpunode in every way, and compare what each environment can import and do.

It works in a temporary folder and needs no node. What the caches of uv and pip lack comes from the package index.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
_UV = str(Path(sys.executable).with_name("uv"))
# The others are compared with the first.
_INSTALLED, _EDITABLE = ("wheel", "sdist", "checkout"), ("editable", "uv sync")
_PLAN = tuple(CHECKOUT / "docs" / "examples" / "plan" / name for name in ("facts.json", "settings.yaml"))
_UNREACHABLE = 'gpu_nodes = [("gone", {"ssh_hostname": "127.0.0.1", "ssh_port": 1, "driver": {"branch": "580"}})]\n'
# __main__ and two deploys act when they are imported.
_MODULES = """
import importlib, json, pkgutil, gpunode
own = {each.name for each in pkgutil.iter_modules([str(gpunode.PACKAGE)])} | {"facts", "operations", "deploys"}
todo, found = [f"gpunode.{name}" for name in own], {"gpunode.templates": "namespace"}
while todo:
    name = todo.pop()
    found[name] = module = importlib.import_module(name)
    below = pkgutil.iter_modules(getattr(module, "__path__", ()), f"{name}.")
    acts = ("__main__", "deploys.gpu_node", "deploys.smoke")
    todo += [each.name for each in below if not each.name.endswith(acts)]
importlib.import_module("gpunode.templates")
roots = [(gpunode.PACKAGE, "."), *((gpunode.ROOMS, name) for name in ("facts", "operations", "deploys", "templates"))]
files = {str(path.relative_to(root)) for root, name in roots for path in (root / name).rglob("*")
         if path.is_file() and path.suffix != ".pyc"}
print(json.dumps([sorted(found), sorted(name for name in files if not name.startswith("repository/"))]))
"""
_BARE = """
import facts.system, operations.files, deploys.toolkit
import gpunode.facts.system, gpunode.operations.files, gpunode.deploys.toolkit
assert facts.system.Boot is gpunode.facts.system.Boot and operations.files is gpunode.operations.files
assert deploys.toolkit.toolkit is gpunode.deploys.toolkit.toolkit
"""


def _run(*line: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program without the variables that name this environment; compiled modules are kept, for speed."""
    without = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONDONTWRITEBYTECODE")
    own = {name: value for name, value in os.environ.items() if name not in without}
    return subprocess.run(
        [str(word) for word in line], cwd=cwd, env={**own, "GPUNODE_HISTORY": "none", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def _done(*line: object, cwd: Path = CHECKOUT) -> str:
    done = _run(*line, cwd=cwd)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, line))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _prepare(folder: Path) -> None:
    """Build the sdist and the wheel from it, and an environment with the dependencies of uv.lock, which is copied."""
    _done(_UV, "build", "--quiet", "--out-dir", folder, CHECKOUT)
    line = ("export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--all-extras", "--output-file")
    _done(_UV, *line, folder / "requirements.txt")
    _done(_UV, "venv", "--quiet", "--relocatable", "--python", sys.executable, folder / "base")
    into = ("--python", folder / "base" / "bin" / "python", "--compile-bytecode")
    _done(_UV, "pip", "install", "--quiet", *into, "--require-hashes", "-r", folder / "requirements.txt")


def _install(way: str, folder: Path) -> Path:
    """Return the programs' folder of an environment with gpunode."""
    if way == "uv sync":
        return Path(sys.executable).parent
    programs = shutil.copytree(folder / "base", folder / way, symlinks=True, copy_function=os.link) / "bin"
    if way == "wheel":
        into = ("--quiet", "--python", programs / "python")
        _done(_UV, "pip", "install", *into, "--no-deps", *folder.glob("*.whl"))
    else:
        what: dict[str, tuple[object, ...]] = {
            "sdist": tuple(folder.glob("*.tar.gz")), "checkout": (CHECKOUT,), "editable": ("-e", CHECKOUT),
        }  # fmt: skip
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", programs / "python")
        _done(*pip, "install", "--quiet", "--no-deps", *what[way])
    return programs


def _checks(way: str, programs: Path, folder: Path) -> Iterator[tuple[str, bool, object]]:
    """Yield (name of the check, whether it passed, what has to be the same for every way)."""
    mine = folder / f"repository of {way}"
    gpunode, pyinfra, python = (programs / name for name in ("gpunode", "pyinfra", "python"))
    done = _run(python, "-c", _MODULES, cwd=folder)
    found = [[done.stderr], []] if done.returncode else json.loads(done.stdout)
    yield "every module is imported", len(found[0]) > 400, found[0]
    yield "every file is there", "templates/scripts/driver.sh" in found[1], found[1]
    done = _run(gpunode, "init", mine, cwd=folder)
    written = {str(path.relative_to(mine)): path.read_text() for path in mine.rglob("*") if path.is_file()}
    yield "init writes a repository", done.returncode == 0 and "deploys/gpu_node.py" in written, written
    # Neither gpunode nor its deploys import a user's packages of the same names.
    for name in ("facts", "operations", "templates", "lab"):
        (mine / name).mkdir(parents=True)
        (mine / name / "__init__.py").write_text("raise RuntimeError\n")
    done = _run(gpunode, "check", "inventories/prod.py", cwd=mine)
    yield "check finds no mistake", done.returncode == 0, done.stdout
    done = _run(gpunode, "plan", "--facts", _PLAN[0], "--settings", _PLAN[1], cwd=mine)
    yield "plan decides the example", done.returncode == 1 and "1 refused" in done.stdout, done.stdout
    (mine / "inventories" / "gone.py").write_text(_UNREACHABLE)
    done = _run(gpunode, "drift", "inventories/gone.py", cwd=mine)
    is_told = done.returncode == 1 and "\ngone: unreachable" in done.stdout
    yield "drift names a host that is not reached", is_told, done.stdout
    done = _run(pyinfra, "--json", "@local", "fact", "gpunode.facts.requirements.Requirements", cwd=mine)
    yield "pyinfra reads gpunode.facts.requirements", done.returncode == 0 and '"status"' in done.stdout, None
    own = folder / f"packages of {way}"
    (own / "facts").mkdir(parents=True)
    (own / "facts" / "__init__.py").touch()
    (own / "facts" / "system.py").write_text("MINE = 1\n")
    done = _run(python, "-c", "import gpunode.facts.system, facts.system; assert facts.system.MINE == 1", cwd=own)
    yield "a user's package facts stays theirs", done.returncode == 0, None
    done = _run(gpunode, "lab", "list", cwd=mine)
    if way in _INSTALLED:
        lines = done.stderr.splitlines()
        yield "lab says that it needs a checkout", done.returncode == 1 and len(lines) == 1, None
    else:
        yield "lab lists the checkout's", done.returncode == 0, None
        yield "bare names are the same modules", _run(python, "-c", _BARE, cwd=CHECKOUT).returncode == 0, None
        done = _run(pyinfra, "--json", "@local", "fact", "facts.requirements.Requirements", cwd=CHECKOUT)
        yield "pyinfra reads facts.requirements", done.returncode == 0 and '"status"' in done.stdout, None


def main() -> int:
    """Print a line per check, and the result of a check that failed; return the exit status."""
    ways = (*_INSTALLED, *_EDITABLE)
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        folder = Path(name)
        _prepare(folder)
        results = list(pool.map(lambda way: [*_checks(way, _install(way, folder), folder)], ways))
    failed, first = 0, {name: shown for name, _, shown in results[0]}
    for way, checks in zip(ways, results, strict=True):
        for name, good, shown in checks:
            is_same = shown == first.get(name, shown)
            failed += not (good and is_same)
            print(f"{way}: {name}{'' if good else ': FAILED'}{'' if is_same else f', DIFFERS from the {ways[0]}'}")
            if not (good and is_same):
                print(f"  {shown}"[:2000])
    print(f"{sum(map(len, results)) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
