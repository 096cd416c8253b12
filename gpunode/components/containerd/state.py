"""What containerd on a node is: the running unit's binary and file, the merged configuration, the CRI plugin."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, field
from fnmatch import fnmatch
from typing import Any

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.toml_edit import ConfigurationRefused, plain
from gpunode.base.versions import program_version
from gpunode.components.containerd.schema import default_table_counts, names_runtime
from gpunode.system.service import ServiceState, parse_service
from gpunode.system.started import seconds
from gpunode.system.unit import is_masked, starts_at_boot

CRI_PLUGINS = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
# What is the default runtime where the deprecated table of that name says so, whatever `default_runtime_name` says.
DEFAULT_TABLE = "the table default_runtime"


@dataclass(frozen=True)
class Runtime(Reading):
    """Hold one runtime of the merged configuration."""

    name: str
    type: str | None
    binary: str | None
    systemd_cgroup: bool


@dataclass(frozen=True)
class DropIn(Reading):
    """Hold a file beside the root file: what it says of the runtimes, by key below the CRI plugin.

    `imported`: the root file's `imports` name it; `section`: it has a section of the CRI plugin's; `error`: why it
    cannot be read. The text may hold registry credentials and is in no output.
    """

    path: str
    says: tuple[tuple[str, str], ...] = ()
    imported: bool = True
    section: bool = False
    error: str | None = None
    text: str | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the fields without the text."""
        return {key: value for key, value in super().to_json().items() if key != "text"}


@dataclass(frozen=True)
class Containerd(Reading):
    """Hold containerd as it is.

    `version` is None where it is not installed, or where the `binary` that its unit names is missing. Times are seconds
    since the epoch; `started_at` is None where it does not run. `default_runtime`, `runtimes` and `enable_cdi` are of
    the merged configuration (`containerd config dump`), None and empty where it cannot be read; `cri_plugin` is ok,
    error, skip … as `ctr plugins ls` says. `shims` counts running containers. `merged` is the digest of the merged
    configuration, `loaded` that of the one which the running daemon started with, None where nobody noted it.
    `merged_text` is that configuration itself; `masked`: somebody forbade that the unit is started. `configured_at` is
    when a configuration file was last written, `unit_written_at` when the unit was.
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
    enable_cdi: bool | None = None
    drop_ins: tuple[DropIn, ...] = ()
    merged: str | None = None
    loaded: str | None = None
    unit_written_at: float | None = None
    merged_text: str | None = field(default=None, repr=False)
    masked: bool = False
    service: ServiceState = field(default_factory=ServiceState)

    @property
    def stale(self) -> bool:
        """Say whether the daemon runs by another configuration than the files', or since before its unit was changed.

        A file in which a comment alone was changed is newer than the daemon and makes no difference to it, where it was
        noted what the daemon started with; else the files' times decide.
        """
        if not self.active or self.started_at is None:
            return False
        if self.unit_written_at is not None and self.unit_written_at > self.started_at:
            return True
        if self.loaded is not None and self.merged is not None:
            return self.loaded != self.merged
        return self.configured_at is not None and self.configured_at > self.started_at

    @property
    def effective(self) -> tuple[tuple[str, str], ...]:
        """Return what the merged configuration says, by the keys of `cri_settings`."""
        found: dict[str, str] = {}
        _say(found, "enable_cdi", self.enable_cdi)
        _say(found, "containerd.default_runtime_name", self.default_runtime)
        for runtime in self.runtimes:
            options = f"containerd.runtimes.{runtime.name}.options"
            _say(found, f"{options}.BinaryName", runtime.binary)
            _say(found, f"{options}.SystemdCgroup", runtime.systemd_cgroup)
        return tuple(found.items())

    def drop_in(self, path: str) -> DropIn | None:
        """Return the drop-in of that path."""
        return next((drop_in for drop_in in self.drop_ins if drop_in.path == path), None)

    def runtime(self, name: str) -> Runtime | None:
        """Return the runtime of that name in the merged configuration."""
        return next((runtime for runtime in self.runtimes if runtime.name == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the fields without the files' texts, which may hold registry credentials."""
        return {key: value for key, value in super().to_json().items() if key not in ("config_text", "merged_text")}


def effective_runtimes(merged: str) -> tuple[str | None, tuple[Runtime, ...]]:
    """Return the default runtime's name and all runtimes of a merged configuration (TOML text).

    The name is DEFAULT_TABLE where containerd obeys that table: one that does not read it does not print it either.
    """
    try:
        document = tomllib.loads(merged)
    except tomllib.TOMLDecodeError as error:
        raise ParseError(f"`containerd config dump` is not TOML: {error}") from error
    plugins = document.get("plugins", {})
    for plugin in CRI_PLUGINS:
        containerd = plugins.get(plugin, {}).get("containerd")
        if containerd:
            return _default_runtime(containerd), tuple(
                Runtime(
                    name=name,
                    type=runtime.get("runtime_type") or None,
                    binary=runtime.get("options", {}).get("BinaryName") or None,
                    systemd_cgroup=bool(runtime.get("options", {}).get("SystemdCgroup", False)),
                )
                for name, runtime in sorted(containerd.get("runtimes", {}).items())
            )
    return None, ()


def _default_runtime(containerd: dict[str, Any]) -> str | None:
    if names_runtime(containerd.get("default_runtime")):
        return DEFAULT_TABLE
    name = containerd.get("default_runtime_name")
    return name if isinstance(name, str) else None


def cri_settings(document: dict[str, Any], obeys_table: bool = True) -> dict[str, str]:
    """Return what a parsed file or dump says of the runtimes: key below the CRI plugin -> value as TOML writes it.

    obeys_table: whether the containerd that reads it obeys the table `default_runtime`
    """
    found: dict[str, str] = {}
    for plugin in CRI_PLUGINS:
        section = document.get("plugins", {}).get(plugin)
        if not isinstance(section, dict):
            continue
        _say(found, "enable_cdi", section.get("enable_cdi"))
        containerd = section.get("containerd", {})
        default = _default_runtime(containerd) if obeys_table else containerd.get("default_runtime_name")
        _say(found, "containerd.default_runtime_name", default)
        for name, runtime in containerd.get("runtimes", {}).items():
            for option in ("BinaryName", "SystemdCgroup"):
                _say(found, f"containerd.runtimes.{name}.options.{option}", runtime.get("options", {}).get(option))
    return found


def _say(found: dict[str, str], key: str, value: Any) -> None:
    if isinstance(value, bool):
        found[key] = str(value).lower()
    elif isinstance(value, str) and value:
        found[key] = value


def _drop_in(path: str, text: str, imported: bool, obeys_table: bool) -> DropIn:
    try:
        document = plain(text)
        says = cri_settings(document, obeys_table)
        section = any(plugin in document.get("plugins", {}) for plugin in CRI_PLUGINS)
    except (ConfigurationRefused, AttributeError) as error:
        return DropIn(path, imported=imported, error=str(error), text=text)
    return DropIn(path, tuple(sorted(says.items())), imported, section, None, text)


def _drop_ins(lines: list[str], root: str | None, obeys_table: bool) -> tuple[DropIn, ...]:
    """Return the drop-ins in the order in which they are read: that of the imports, and of names within a pattern."""
    found = []
    for line in repeated(lines, "drop_in"):
        imported, encoded, path = line.split(" ", 2)
        text = decoded({"drop_in": encoded}, "drop_in") if encoded != "-" else ""
        found.append(_drop_in(path, text or "", imported == "yes", obeys_table))
    return tuple(sorted(found, key=lambda drop_in: (_place(drop_in.path, root), drop_in.path)))


def _place(path: str, root: str | None) -> int:
    # containerd 1 prints its imports in any order.
    try:
        imports = plain(root or "").get("imports", [])
    except ConfigurationRefused:
        return 0
    patterns = imports if isinstance(imports, list) else []
    return next((place for place, pattern in enumerate(patterns) if fnmatch(path, str(pattern))), len(patterns))


def _digest(dump: str) -> str:
    """Return the digest of a dump without its imports, as the node makes it: containerd 1 prints those in any order."""
    lines = [line for line in dump.removesuffix("\n").split("\n") if not line.startswith("imports =")]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


# The digest of a dump that failed.
_NOTHING = hashlib.sha256(b"").hexdigest()
# A daemon may take a while to stop before it starts, and what it will start with is noted before.
_NOTED_BEFORE_START = 300.0


def _loaded(noted: str | None, started: float | None) -> str | None:
    """Return the digest that was noted for this very start of the daemon."""
    digest, _, when = (noted or "").partition(" ")
    at = _seconds(when)
    if digest in ("", _NOTHING) or at is None or started is None or at < started - _NOTED_BEFORE_START:
        return None
    return digest


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


def _latest(times: list[str]) -> float | None:
    return max((at for at in map(_seconds, times) if at is not None), default=None)


def parse_containerd(lines: list[str]) -> Containerd:
    """Parse the containerd probe's lines (gpunode/components/containerd/state.sh)."""
    found = values(lines)
    merged = decoded(found, "merged")
    default, runtimes = effective_runtimes(merged) if merged else (None, ())
    cdi = cri_settings(tomllib.loads(merged)).get("enable_cdi") if merged else None
    started = seconds(found["started"]) if "started" in found else None
    version = program_version(found.get("version", "").partition("containerd ")[2] or found.get("version"))
    return Containerd(
        version=version,
        binary=found.get("binary"),
        config_path=found.get("config", "/etc/containerd/config.toml"),
        config_text=decoded(found, "text"),
        active=found.get("ActiveState") == "active",
        enabled=starts_at_boot(found.get("UnitFileState")),
        masked=is_masked(found.get("UnitFileState")),
        service=parse_service(lines),
        started_at=started,
        configured_at=_latest(repeated(lines, "written")),
        default_runtime=default,
        runtimes=runtimes,
        cri_plugin=_cri_state(repeated(lines, "plugin")),
        shims=int(found.get("shims", "0") or 0),
        enable_cdi=None if cdi is None else cdi == "true",
        drop_ins=_drop_ins(lines, decoded(found, "text"), version is None or default_table_counts(version)),
        merged=_digest(merged) if merged else None,
        loaded=_loaded(found.get("loaded"), started),
        unit_written_at=_latest(repeated(lines, "unit_written")),
        merged_text=merged,
    )
