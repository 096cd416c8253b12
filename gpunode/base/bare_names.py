"""Bare names of a checkout's packages: `facts.node` is the module `gpunode.facts.node`, so that each class exists once.

pyinfra imports `facts.system.Boot` by that name from the working directory. Only gpunode's own packages call `alias`:
a user's package of the same name is never changed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


class _Alias(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        package, dot, _ = name.partition(".")
        is_ours = dot and sys.modules.get(package) is sys.modules.get(f"gpunode.{package}", self)
        return ModuleSpec(name, self) if is_ours and find_spec(f"gpunode.{name}") else None

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = import_module(f"gpunode.{module.__name__}")


def alias(package: str) -> None:
    """Make a package that is being imported as `facts` the package `gpunode.facts`, with all its modules."""
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Alias())
    sys.modules[package] = import_module(f"gpunode.{package}")
