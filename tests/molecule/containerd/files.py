"""Comments and foreign values of a file."""

from __future__ import annotations

from typing import Any


def comments(file: str) -> list[str]:
    """Return the comments of a file, with the line that each stands on."""
    return [line for line in file.splitlines() if "#" in line]


def foreign(document: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the values of a parsed file that are not gpunode's, by their keys."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in document.items():
        here = (*path, key)
        if isinstance(value, dict):
            found |= foreign(value, here)
        elif not (here in (("version",), ("imports",)) or _ours(here)):
            found[here] = value
    return found


def _ours(path: tuple[str, ...]) -> bool:
    if path[2:] == ("containerd", "default_runtime_name"):
        return True
    return path[2:4] == ("containerd", "runtimes") and path[4] in ("runc", "nvidia")
