"""The NVIDIA container toolkit on a node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode import versions
from gpunode.probe_output import repeated, values
from gpunode.reading import Reading

# They belong together, but their dependencies bind only the first two to one version: apt may move one alone.
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
_CTK = re.compile(r"version (\d+\.\d+\.\d+\S*)")


@dataclass(frozen=True)
class ContainerToolkit(Reading):
    """Hold packages (name, version), the version that nvidia-ctk prints and the runtime's path."""

    packages: tuple[tuple[str, str], ...]
    version: str | None
    runtime_path: str | None

    @property
    def package_versions(self) -> tuple[str, ...]:
        """Return the versions at which the toolkit's packages are installed, newest first, each once, without revision.

        Raise VersionError where a package's version is none.
        """
        installed = dict(self.packages)
        found = {versions.upstream(installed[name]) for name in PACKAGES if name in installed}
        return tuple(sorted(found, key=versions.parsed, reverse=True))

    @property
    def missing_packages(self) -> tuple[str, ...]:
        """Return the toolkit's packages that are not installed."""
        installed = dict(self.packages)
        return tuple(name for name in PACKAGES if name not in installed)

    @property
    def nvidia_docker2_version(self) -> str | None:
        """Return the version of the legacy nvidia-docker2 package, None where it is not installed."""
        return dict(self.packages).get("nvidia-docker2")


def parse_toolkit(lines: list[str]) -> ContainerToolkit:
    """Parse `package=NAME VERSION`, `ctk=...` and `runtime=PATH` lines."""
    found = values(lines)
    packages = (line.partition(" ")[::2] for line in repeated(lines, "package"))
    match = _CTK.search(found.get("ctk", ""))
    return ContainerToolkit(
        packages=tuple(sorted((name, version) for name, version in packages)),
        version=match[1] if match else None,
        runtime_path=found.get("runtime"),
    )
