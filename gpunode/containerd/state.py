"""What containerd on a node is: the running unit's binary and file, the merged configuration, the CRI plugin."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from typing import Any

from gpunode.probe_output import decoded, repeated, values
from gpunode.reading import ParseError, Reading
from gpunode.unit import starts_at_boot
from gpunode.versions import program_version

_CRI_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")


@dataclass(frozen=True)
class Runtime(Reading):
    """Hold one runtime of the merged configuration."""

    name: str
    type: str | None
    binary: str | None
    systemd_cgroup: bool


@dataclass(frozen=True)
class Containerd(Reading):
    """Hold containerd as it is.

    `version` is None where it is not installed. Times are seconds since the epoch; `started_at` is None where it does
    not run. `default_runtime` and `runtimes` are of the merged configuration (`containerd config dump`), None and
    empty where it cannot be read; `cri_plugin` is ok, error, skip … as `ctr plugins ls` says. `shims` counts running
    containers.
    """

    version: str | None
    binary: str | None
    config_path: str
    config_text: str | None = field(repr=False)
    active: bool
    enabled: bool
    started_at: float | None
    configured_at: float | None
    default_runtime: str | None
    runtimes: tuple[Runtime, ...]
    cri_plugin: str | None
    shims: int

    @property
    def stale(self) -> bool:
        """Say whether the daemon runs since before its configuration was last written."""
        return (
            self.active
            and self.started_at is not None
            and self.configured_at is not None
            and self.configured_at > self.started_at
        )

    def runtime(self, name: str) -> Runtime | None:
        """Return the runtime of that name in the merged configuration."""
        return next((runtime for runtime in self.runtimes if runtime.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the fields without the file's text, which may hold registry credentials."""
        return {key: value for key, value in super().to_json().items() if key != "config_text"}


def effective_runtimes(merged: str) -> tuple[str | None, tuple[Runtime, ...]]:
    """Return the default runtime's name and all runtimes of a merged configuration (TOML text)."""
    try:
        document = tomllib.loads(merged)
    except tomllib.TOMLDecodeError as error:
        raise ParseError(f"`containerd config dump` is not TOML: {error}") from error
    plugins = document.get("plugins", {})
    for plugin in _CRI_PLUGINS:
        containerd = plugins.get(plugin, {}).get("containerd")
        if containerd:
            return containerd.get("default_runtime_name"), tuple(
                Runtime(
                    name=name,
                    type=runtime.get("runtime_type") or None,
                    binary=runtime.get("options", {}).get("BinaryName") or None,
                    systemd_cgroup=bool(runtime.get("options", {}).get("SystemdCgroup", False)),
                )
                for name, runtime in sorted(containerd.get("runtimes", {}).items())
            )
    return None, ()


def _cri_state(plugin_lines: list[str]) -> str | None:
    """Return the CRI plugin's state from `ctr plugins ls` rows (TYPE ID PLATFORMS STATUS).

    containerd 2.x has a runtime part beside the gRPC service; the worse of the two counts.
    """
    states = []
    for line in plugin_lines:
        cells = line.split()
        if len(cells) >= 3 and (cells[0], cells[1]) in (
            ("io.containerd.grpc.v1", "cri"),
            ("io.containerd.cri.v1", "runtime"),
        ):
            states.append(cells[-1])
    if not states:
        return None
    return next((state for state in states if state != "ok"), "ok")


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError as error:
        raise ParseError(f"not a time: {text!r}") from error


def parse_containerd(lines: list[str]) -> Containerd:
    """Parse the containerd probe's lines (facts/containerd.py)."""
    found = values(lines)
    merged = decoded(found, "merged")
    default, runtimes = effective_runtimes(merged) if merged else (None, ())
    written = [_seconds(time) for time in repeated(lines, "written")]
    return Containerd(
        version=program_version(found.get("version", "").partition("containerd ")[2] or found.get("version")),
        binary=found.get("binary"),
        config_path=found.get("config", "/etc/containerd/config.toml"),
        config_text=decoded(found, "text"),
        active=found.get("ActiveState") == "active",
        enabled=starts_at_boot(found.get("UnitFileState")),
        started_at=_seconds(found.get("started")),
        configured_at=max((time for time in written if time is not None), default=None),
        default_runtime=default,
        runtimes=runtimes,
        cri_plugin=_cri_state(repeated(lines, "plugin")),
        shims=int(found.get("shims", "0") or 0),
    )
