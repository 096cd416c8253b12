"""One file on a node."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe_output import values
from gpunode.base.reading import Reading


@dataclass(frozen=True)
class File(Reading):
    """Hold a regular file's sha256 (hex), mode (octal digits), owner and group; all None where there is none."""

    sha256: str | None
    mode: str | None
    owner: str | None
    group: str | None


def parse_file(lines: list[str]) -> File:
    """Parse `sha256=`, `mode=`, `owner=` and `group=` lines; none at all means that there is no file."""
    found = values(lines)
    return File(found.get("sha256"), found.get("mode"), found.get("owner"), found.get("group"))
