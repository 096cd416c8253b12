"""Which operating system, architecture and kernel a node has."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.probe_output import values
from gpunode.base.reading import ParseError, Reading


@dataclass(frozen=True)
class OperatingSystem(Reading):
    """Hold /etc/os-release, `uname -m` and `uname -r` of a node; `tegra` is true on NVIDIA's integrated boards.

    `booted` is false of a root directory of which an image is made: it runs on another machine's kernel and hardware.
    `driver_branch` is the branch of the driver that a rolling release has: the installed one's, else that of its lists.
    """

    id: str
    version_id: str
    codename: str | None
    id_like: tuple[str, ...]
    name: str
    architecture: str
    kernel: str
    tegra: bool
    booted: bool = True
    driver_branch: str | None = None


def parse_operating_system(lines: list[str]) -> OperatingSystem:
    """Parse the probe's lines (`os.ID=debian`, `architecture=x86_64`, `kernel=...`, `tegra=yes|no`)."""
    found = {key: value.strip("\"'") for key, value in values(lines).items()}
    for key in ("architecture", "kernel"):
        if key not in found:
            raise ParseError(f"the node did not say its {key}")
    if "os.ID" not in found:
        raise ParseError("the node has no /etc/os-release with an ID")
    branch = found.get("driver_branch", "")
    return OperatingSystem(
        id=found["os.ID"],
        version_id=found.get("os.VERSION_ID", ""),
        codename=found.get("os.VERSION_CODENAME"),
        id_like=tuple(found.get("os.ID_LIKE", "").split()),
        name=found.get("os.PRETTY_NAME", found["os.ID"]),
        architecture=found["architecture"],
        kernel=found["kernel"],
        tegra=found.get("tegra") == "yes",
        booted=found.get("booted") != "no",
        driver_branch=branch if re.fullmatch(r"\d{3}", branch, re.ASCII) else None,
    )
