"""What CRI-O makes of its files: of each key the last word counts, of each runtime the last table as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.toml_edit import ConfigurationRefused, plain

KEYS = ("default_runtime", "cgroup_manager")
# What a new runtime does not take over from the one that it stands beside.
_OWN = ("runtime_path", "runtime_type", "inherit_default_runtime")


@dataclass
class Merged:
    """Hold what files say of runtimes: key -> value, name -> its table, and in which file each was said last.

    unreadable: `PATH: why` of files that are no TOML, with which CRI-O does not start.
    """

    keys: dict[str, Any] = field(default_factory=dict)
    runtimes: dict[str, dict[str, Any]] = field(default_factory=dict)
    said_in: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def like(self) -> dict[str, Any]:
        """Return the options of a new runtime nvidia, as nvidia-ctk takes them over: where conmon is, for one."""
        default = str(self.keys.get("default_runtime", ""))
        names = ("nvidia", "" if default.startswith("nvidia") else default, "runc", "crun")
        row = next((self.runtimes[name] for name in names if name in self.runtimes), {})
        return {key: value for key, value in row.items() if key not in _OWN}


def merged(files: Mapping[str, str], root: str) -> Merged:
    """Return what files (path -> text) come to; the root file counts least."""
    found = Merged()
    # A name within a folder counts before a longer one beside that folder: so filepath.Walk has it.
    for path in sorted(files, key=lambda path: (path != root, path.split("/"))):
        text = files[path]
        try:
            runtime = table(plain(text), "crio", "runtime")
        except ConfigurationRefused as error:
            found.unreadable.append(f"{path}: {error}")
            continue
        keys = {key: runtime[key] for key in KEYS if key in runtime}
        runtimes = runtimes_of(runtime)
        found.keys |= keys
        found.runtimes |= runtimes
        found.said_in |= dict.fromkeys((*keys, *(f"runtimes.{name}" for name in runtimes)), path)
    return found


def table(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the table below others; empty where there is none."""
    found: Any = document
    for name in names:
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def runtimes_of(runtime: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return name -> table of the runtimes in crio.runtime."""
    return {name: row for name, row in table(runtime, "runtimes").items() if isinstance(row, dict)}
