"""Packages of container runtimes."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.facts.shared import PACKAGES
from gpunode.probe import shell_text
from gpunode.runtime_packages import RUNTIMES, parse_runtime_packages
from gpunode.runtime_packages import RuntimePackages as Reading


class RuntimePackages(NodeFact[Reading]):
    """Read which packages of container runtimes are installed, whatever source they came from."""

    probe = shell_text("runtime_packages", shared=(PACKAGES,), RUNTIMES=" ".join(RUNTIMES))
    parse = staticmethod(parse_runtime_packages)
