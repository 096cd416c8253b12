"""Free space on a node, by the folders that packages fill."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.probe_output import number, repeated
from gpunode.base.reading import ParseError, Reading

# Size, used, available, used in percent, mount point; before them stands the device, whose name may hold anything.
_LINE = re.compile(r"\s\d+\s+\d+\s+(\d+)\s+(?:\d+%|-)\s+(/.*)$", re.ASCII)


@dataclass(frozen=True)
class Disk(Reading):
    """Hold (folder, its file system's mount point, bytes that root may still write there)."""

    free: tuple[tuple[str, str, int], ...]


def parse_disk(lines: list[str]) -> Disk:
    """Parse `folder=FOLDER` lines, and as many `df=LINE` in the same order, of what `df -Pk` prints below its title."""
    folders, told = repeated(lines, "folder"), repeated(lines, "df")
    if len(folders) != len(told):
        raise ParseError(f"df told of {len(told)} file systems, and not of {len(folders)} folders")
    found = []
    for folder, line in zip(folders, told, strict=True):
        match = _LINE.search(line)
        if match is None:
            raise ParseError(f"not a file system's free space: {line[:80]!r}")
        found.append((folder, match[2], number(match[1]) * 1024))
    return Disk(tuple(found))
