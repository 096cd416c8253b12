"""The NVIDIA container toolkit on a node."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.probe_output import repeated, values
from gpunode.reading import Reading

_CTK = re.compile(r"version (\d+\.\d+\.\d+\S*)")


@dataclass(frozen=True)
class ContainerToolkit(Reading):
    """Hold packages (name, version), the version that nvidia-ctk prints and the runtime's path."""

    packages: tuple[tuple[str, str], ...]
    version: str | None
    runtime_path: str | None

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
