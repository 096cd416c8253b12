"""CRI-O on a node: the running unit's program and files, and what the daemon says that it runs by."""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import Reading
from gpunode.base.versions import program_version
from gpunode.components.crio.merged import runtimes_of, table
from gpunode.system.service import ServiceState, parse_service
from gpunode.system.unit import is_masked, starts_at_boot


@dataclass(frozen=True)
class Crio(Reading):
    """Hold CRI-O as it is.

    `version` is None where it is not there, or where the `binary` that its unit names is missing. `files` are (path,
    text), None where nobody noted them. `default_runtime` and what follows are what
    the running daemon answers (`crio status config`), None and empty where it does not; `runtimes` are (name, path).
    `flags` are those of the daemon's command line that count more than its files; `masked`: somebody forbade that the
    unit is started. `containers` counts those that run, by their conmon.
    """

    version: str | None = None
    binary: str | None = None
    root: str = "/etc/crio/crio.conf"
    folder: str = "/etc/crio/crio.conf.d"
    files: tuple[tuple[str, str], ...] | None = field(default=None, repr=False)
    active: bool = False
    enabled: bool = False
    flags: tuple[str, ...] = ()
    default_runtime: str | None = None
    cgroup_manager: str | None = None
    runtimes: tuple[tuple[str, str], ...] = ()
    containers: int = 0
    masked: bool = False
    service: ServiceState = field(default_factory=ServiceState)

    @property
    def answers(self) -> bool:
        """Say whether the daemon told of itself."""
        return self.default_runtime is not None

    def to_json(self) -> dict[str, Any]:
        """Return the fields without the files' texts, which may hold what is nobody's business."""
        return {key: value for key, value in super().to_json().items() if key != "files"}


def parse_crio(lines: list[str]) -> Crio:
    """Parse the CRI-O probe's lines (gpunode/components/crio/state.sh)."""
    found = values(lines)
    runtime = _running(decoded(found, "running"))
    default, manager = runtime.get("default_runtime"), runtime.get("cgroup_manager")
    handlers = runtimes_of(runtime)
    return Crio(
        # It prints a list, of which the first line is the version.
        version=program_version(next(iter(repeated(lines, "crio")), None)),
        binary=found.get("binary"),
        root=found.get("root", "/etc/crio/crio.conf"),
        folder=found.get("folder", "/etc/crio/crio.conf.d"),
        files=tuple(sorted(_files(lines))),
        active=found.get("ActiveState") == "active",
        enabled=starts_at_boot(found.get("UnitFileState")),
        masked=is_masked(found.get("UnitFileState")),
        service=parse_service(lines),
        flags=tuple(sorted(set(repeated(lines, "flag")))),
        default_runtime=default if isinstance(default, str) and default else None,
        cgroup_manager=manager if isinstance(manager, str) else None,
        runtimes=tuple(sorted((name, str(row.get("runtime_path", ""))) for name, row in handlers.items())),
        containers=int(found.get("containers") or 0),
    )


def _files(lines: list[str]) -> Iterator[tuple[str, str]]:
    for row in repeated(lines, "file"):
        path, _, encoded = row.rpartition(" ")
        yield path, base64.b64decode(encoded).decode(errors="replace")


def _running(text: str | None) -> dict[str, Any]:
    """Return what the daemon runs by, below crio.runtime; empty where it gave no answer that can be read."""
    try:
        return table(tomllib.loads(text or ""), "crio", "runtime")
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}
