"""Is the NVIDIA container toolkit there, whole and at one version?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import versions
from gpunode.findings import Finding
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import compared
from gpunode.verify.subject import Subject


def toolkit(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the toolkit's packages, and the runtime that container daemons are told of."""
    found, wanted = node.toolkit.version, settings.toolkit.version
    good = found is not None and (wanted is None or versions.in_branch(found, wanted))
    yield compared("toolkit", Subject.TOOLKIT, found, wanted or "any version", good)
    packages = (*node.toolkit.package_versions, *(f"no {name}" for name in node.toolkit.missing_packages))
    yield compared(
        "toolkit", Subject.TOOLKIT_PACKAGES, ", ".join(packages), "one version", len(packages) == 1,
        cause="a package was changed without the others",
    )  # fmt: skip
    yield compared(
        "toolkit", Subject.TOOLKIT_RUNTIME, node.toolkit.runtime_path, "on the PATH",
        node.toolkit.runtime_path is not None,
    )  # fmt: skip
