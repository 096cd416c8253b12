"""The docker of one node: its programs and file, and the values that the daemon answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import TextError, load_json
from gpunode.base.versions import program_version
from gpunode.system.service import Daemon, daemon


@dataclass(frozen=True)
class Docker(Daemon):
    """The docker of one node.

    version: of the client; daemon_version: of dockerd; None where the program is missing
    binary: the program that its unit runs
    flags: the flags of its command line that daemon.json must not repeat
    default_runtime and the following: what the running daemon answers (`docker info`), else None and empty; runtimes
    are (name, path), cdi is None where this docker does not report it, containers counts those that run
    """

    version: str | None
    daemon_version: str | None = None
    binary: str | None = None
    config_path: str = "/etc/docker/daemon.json"
    config_text: str | None = field(default=None, repr=False)
    flags: tuple[str, ...] = ()
    default_runtime: str | None = None
    runtimes: tuple[tuple[str, str], ...] = ()
    cgroup_driver: str | None = None
    cdi: bool | None = None
    live_restore: bool = False
    containers: int = 0


_TYPES = {"Runtimes": dict, "DefaultRuntime": str, "CgroupDriver": str, "ContainersRunning": int}


def parse_docker(lines: list[str]) -> Docker:
    """Parse the docker probe's lines (gpunode/components/runtimes/docker/state.sh)."""
    found = values(lines)
    info = _info(decoded(found, "info"))
    for key, kind in _TYPES.items():
        if not isinstance(info.get(key), kind | None):
            raise ParseError(f"`docker info` has {key} as {type(info[key]).__name__}, not {kind.__name__}")
    runtimes = {name: row for name, row in (info.get("Runtimes") or {}).items() if isinstance(row, dict)}
    return Docker(
        version=program_version(found.get("docker")),
        daemon_version=program_version(found.get("dockerd")),
        binary=found.get("binary"),
        config_path=found.get("config", "/etc/docker/daemon.json"),
        config_text=decoded(found, "text") if "text" in found else "",
        **daemon(lines),
        flags=tuple(sorted(set(repeated(lines, "flag")))),
        default_runtime=info.get("DefaultRuntime"),
        runtimes=tuple(
            sorted((name, str(row.get("path") or row.get("runtimeType") or "")) for name, row in runtimes.items())
        ),
        cgroup_driver=info.get("CgroupDriver"),
        # Reported since docker 25; an empty list: CDI is off.
        cdi=bool(info["CDISpecDirs"]) if "CDISpecDirs" in info else None,
        live_restore=bool(info.get("LiveRestoreEnabled")),
        containers=info.get("ContainersRunning") or 0,
    )


def _info(text: str | None) -> dict[str, Any]:
    """Return the output of `docker info`; empty where the daemon gave no answer."""
    if not text:
        return {}
    try:
        info = load_json(text)
    except TextError as error:
        raise ParseError(f"`docker info` cannot be read as JSON: {error}") from error
    if not isinstance(info, dict):
        raise ParseError(f"`docker info` is no object, but {type(info).__name__}")
    # Without a daemon, the client prints only its own values.
    return info if info.get("ServerVersion") else {}
