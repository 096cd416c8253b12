"""The CRI-O of one node: its program and files, the merged configuration, and the values that the daemon answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.probe_output import decoded, files, number, repeated, values
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import TextError, TextLimitError, load_toml
from gpunode.base.toml_edit import ConfigurationRefused, plain
from gpunode.base.versions import program_version
from gpunode.system.service import Daemon, daemon

KEYS = ("default_runtime", "cgroup_manager")
# The keys that a new runtime does not inherit.
_OWN = ("runtime_path", "runtime_type", "inherit_default_runtime")


@dataclass
class Merged:
    """The merged configuration: key -> value, name -> its table, and the file that sets each last.

    unreadable: `PATH: why` of files that are not TOML; CRI-O does not start with them
    """

    keys: dict[str, Any] = field(default_factory=dict)
    runtimes: dict[str, dict[str, Any]] = field(default_factory=dict)
    said_in: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    def like(self) -> dict[str, Any]:
        """Return the options that a new runtime nvidia inherits, as with nvidia-ctk, such as the path of conmon."""
        default = str(self.keys.get("default_runtime", ""))
        names = ("nvidia", "" if default.startswith("nvidia") else default, "runc", "crun")
        row = next((self.runtimes[name] for name in names if name in self.runtimes), {})
        return {key: value for key, value in row.items() if key not in _OWN}


def merged(files: Mapping[str, str], root: str) -> Merged:
    """Return what files (path -> text) come to; the root file counts least."""
    found = Merged()
    # In the order of filepath.Walk: the files of a folder come before a longer name next to that folder.
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


@dataclass(frozen=True)
class Crio(Daemon):
    """The CRI-O of one node.

    version: None where its program is missing
    binary: the program that its unit runs
    files: (path, text); None: not recorded
    flags: the flags of its command line that count more than its files
    default_runtime, cgroup_manager, runtimes: what the running daemon answers (`crio status config`), else None and
    empty; runtimes are (name, path)
    containers: how many run, by their conmon
    """

    version: str | None = None
    binary: str | None = None
    root: str = "/etc/crio/crio.conf"
    folder: str = "/etc/crio/crio.conf.d"
    files: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)
    flags: tuple[str, ...] = ()
    default_runtime: str | None = None
    cgroup_manager: str | None = None
    runtimes: tuple[tuple[str, str], ...] = ()
    containers: int = 0


def parse_crio(lines: list[str]) -> Crio:
    """Parse the CRI-O probe's lines (gpunode/components/runtimes/crio/state.sh)."""
    found = values(lines)
    try:
        runtime = table(load_toml(decoded(found, "running") or ""), "crio", "runtime")
    except TextLimitError as error:
        raise ParseError(f"`crio status config` cannot be read as TOML: {error}") from error
    except TextError:
        runtime = {}  # It gave no answer.
    default, manager = runtime.get("default_runtime"), runtime.get("cgroup_manager")
    return Crio(
        # The first line of a list is the version.
        version=program_version(next(iter(repeated(lines, "crio")), None)),
        binary=found.get("binary"),
        root=found.get("root", "/etc/crio/crio.conf"),
        folder=found.get("folder", "/etc/crio/crio.conf.d"),
        files=tuple(sorted(files(lines))),
        **daemon(lines),
        flags=tuple(sorted(set(repeated(lines, "flag")))),
        default_runtime=default if isinstance(default, str) and default else None,
        cgroup_manager=manager if isinstance(manager, str) else None,
        runtimes=tuple(sorted((name, str(row.get("runtime_path", ""))) for name, row in runtimes_of(runtime).items())),
        containers=number(found.get("containers", "0")),
    )
