"""Imports go down: what stands in a layer asks nothing of those above it, not even within a function; and no cycle."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

import pytest

pytestmark = pytest.mark.pure

CHECKOUT = Path(__file__).parents[2]
# The lowest first. facts, operations and deploys are folders next to gpunode.
LAYERS = (
    "base", "history", "system", "settings", "agent", "packages", "components", "kubernetes", "node", "facts",
    "fleet", "operations", "deploys", "cli",
)  # fmt: skip
NEXT_TO_IT = ("facts", "operations", "deploys")
# Data belongs to no layer.
NONE = {"data"}


def _modules() -> dict[str, Path]:
    """Return the name of each module below gpunode, as it is imported, with its file."""
    rooms = [(CHECKOUT / "gpunode", "gpunode"), *((CHECKOUT / name, f"gpunode.{name}") for name in NEXT_TO_IT)]
    found = {}
    for folder, package in rooms:
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((package, *parts)).removesuffix(".__init__")
            if _layer(name) not in NONE:
                found[name] = path
    return found


def _layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def _imported(name: str, path: Path, modules: dict[str, Path], *, types: bool = True) -> Iterator[str]:
    """Yield the modules that a module imports, wherever in its file; types: also those for type checkers alone."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not types:
        tree.body = [each for each in tree.body if not (isinstance(each, ast.If) and _for_types(each.test))]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            for each in node.names:
                inner = f"{source}.{each.name}"
                yield inner if inner in modules or source == "gpunode" else source
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.Call) and "import_module" in (
            getattr(node.func, "id", ""), getattr(node.func, "attr", "")
        ):  # fmt: skip
            yield from (str(each.value) for each in node.args if isinstance(each, ast.Constant))


def _for_types(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"


def test_every_package_of_gpunode_is_a_layer() -> None:
    # A folder that a former version had may still hold what Python compiled.
    found = [path for path in (CHECKOUT / "gpunode").iterdir() if path.is_dir() and path.name != "__pycache__"]
    folders = {path.name for path in found if any(each.suffix != ".pyc" for each in path.rglob("*") if each.is_file())}
    assert folders | set(NEXT_TO_IT) == set(LAYERS) | NONE
    assert [path.name for path in (CHECKOUT / "gpunode").glob("*.py")] == ["__init__.py"]


def test_no_import_goes_up() -> None:
    modules = _modules()
    upwards = [
        f"{name} imports {other}"
        for name, path in sorted(modules.items())
        for other in _imported(name, path, modules)
        if other in modules
        and _layer(name)
        and _layer(other)
        and LAYERS.index(_layer(other)) > LAYERS.index(_layer(name))
    ]
    assert upwards == []


def test_no_module_imports_the_lab_nor_a_package_by_its_bare_name() -> None:
    # A wheel has no lab, and a user may have packages of these names.
    bare = {*NEXT_TO_IT, "lab", "tests"}
    modules = _modules()
    wrong = [
        f"{name} imports {other}"
        for name, path in sorted(modules.items())
        for other in _imported(name, path, modules)
        if other.split(".")[0] in bare or (other.startswith("gpunode.lab") and name != "gpunode.cli.lab")
    ]
    assert wrong == []


def test_no_packages_import_each_other() -> None:
    modules = _modules()
    packages = {name for name, path in modules.items() if path.name == "__init__.py"}

    def package(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    asks: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        mine = package(name)
        for other in _imported(name, path, modules):
            its = package(other) if other in modules else mine
            # A package and what is within it are one.
            if not (its + ".").startswith(mine + ".") and not (mine + ".").startswith(its + "."):
                asks[mine].add(its)
    reached = {name: _reached(name, asks) for name in asks}
    assert sorted(name for name, others in reached.items() if name in others) == []


def test_behind_an_operation_are_few_modules_and_none_of_the_fleet() -> None:
    modules = _modules()
    asks = {
        name: {each for each in _imported(name, path, modules, types=False) if each in modules}
        for name, path in modules.items()
    }
    for operation, most in (("gpunode.operations.containerd", 60), ("gpunode.operations.docker", 60)):
        reached = {operation, *_reached(operation, asks)}
        assert len(reached) <= most
        assert sorted(name for name in reached if _layer(name) in ("fleet", "kubernetes", "cli")) == []


def _reached(package: str, asks: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = list(asks[package])
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += asks.get(name, ())
    return found
