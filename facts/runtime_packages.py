"""Packages of container runtimes."""

from __future__ import annotations

from facts.base import NodeFact
from facts.shared import PACKAGES, RUNTIMES
from gpunode.probe import shell_text
from gpunode.runtime_packages import RuntimePackages as Reading
from gpunode.runtime_packages import parse_runtime_packages


class RuntimePackages(NodeFact[Reading]):
    """Read which packages of container runtimes are installed, whatever source they came from."""

    probe = shell_text("runtime_packages", shared=(PACKAGES,), RUNTIMES=" ".join(RUNTIMES))
    parse = staticmethod(parse_runtime_packages)
