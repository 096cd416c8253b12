"""Packages of container runtimes."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.runtime_packages import RUNTIMES, parse_runtime_packages
from gpunode.components.runtime_packages import RuntimePackages as Reading
from gpunode.facts.base import NodeFact
from gpunode.facts.package_list import PACKAGES


class RuntimePackages(NodeFact[Reading]):
    """Read which packages of container runtimes are installed, whatever source they came from."""

    probe = shell_text("components/runtime_packages", shared=(PACKAGES,), RUNTIMES=" ".join(RUNTIMES))
    parse = staticmethod(parse_runtime_packages)
