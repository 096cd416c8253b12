"""Free space on a node, by the folders that packages fill."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.probe_output import repeated
from gpunode.reading import ParseError, Reading


@dataclass(frozen=True)
class Disk(Reading):
    """Hold (folder, its file system's mount point, bytes that root may still write there)."""

    free: tuple[tuple[str, str, int], ...]

    def mount_of(self, folder: str) -> str | None:
        """Return the mount point that a folder lies on; None where the node did not tell."""
        return next((mount for name, mount, _ in self.free if name == folder), None)


def parse_disk(lines: list[str]) -> Disk:
    """Parse `free=FOLDER KIB MOUNT` lines."""
    found = []
    for line in repeated(lines, "free"):
        words = line.split(" ", 2)
        if len(words) != 3 or not words[1].isdigit():
            raise ParseError(f"not a file system's free space: {line[:80]!r}")
        found.append((words[0], words[2], int(words[1]) * 1024))
    return Disk(tuple(found))
