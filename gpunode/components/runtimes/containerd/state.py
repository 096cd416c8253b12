"""The actual containerd of a node: the unit's binary and root file, the merged configuration, the CRI plugin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any

from gpunode.base.probe_output import decoded, number, repeated, timestamp, values
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import load_toml
from gpunode.base.terminal import printable
from gpunode.base.toml_edit import ConfigurationRefused, plain
from gpunode.base.versions import program_version
from gpunode.components.runtimes.containerd.drop_in import PATH
from gpunode.components.runtimes.containerd.editor import default_table_counts
from gpunode.components.runtimes.containerd.effective import (
    Runtime,
    cdi_of,
    cri_settings,
    merged_document,
    runtimes_of,
    set_value,
)
from gpunode.components.runtimes.containerd.keys import as_read
from gpunode.components.runtimes.containerd.reading import CRI_PARTS, CRI_PLUGINS, counted, read_order
from gpunode.components.runtimes.containerd.source import UNIT
from gpunode.system.service import Confidential, Daemon, daemon, seconds


@dataclass(frozen=True)
class DropIn(Confidential):
    """A drop-in.

    says: its values for the runtimes, by key below the CRI plugin
    imported: whether the root file's `imports` name it; section: whether it has a section of the CRI plugin
    error: why it cannot be parsed
    text: in no output, since it may hold registry credentials
    """

    path: str
    says: tuple[tuple[str, str], ...] = ()
    imported: bool = True
    section: bool = False
    error: str | None = None
    text: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Containerd(Daemon):
    """The actual containerd of a node. Times are seconds since the epoch.

    unit: its unit; generated: whether the program of that unit writes the root file at each start, as k3s does
    own_drop_in: the path of gpunode's drop-in
    version: None where it is not installed, or the `binary` that its unit names is missing
    config_text: empty without the file; None in recorded facts, which have no text
    started_at: None where it does not run
    configured_at, unit_written_at: when a configuration file, and the unit, was last written
    default_runtime, runtimes, enable_cdi: of the merged configuration (`containerd config dump`); None and empty where
    it cannot be read
    cri_plugin: ok, error, skip … of `ctr plugins ls`; cri_reason: why it is error, in containerd's words
    shims: how many containers run
    merged: the digest of the merged configuration, `merged_text`
    loaded: the digest of the configuration that the daemon started with; None where it was not recorded
    """

    version: str | None
    binary: str | None
    config_path: str
    config_text: str | None = field(repr=False)
    active: bool = field(kw_only=True)
    enabled: bool = field(kw_only=True)
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
    cri_reason: str | None = None
    unit: str = UNIT
    generated: bool = False
    own_drop_in: str = PATH

    @property
    def stale(self) -> bool:
        """Return whether the daemon runs by another configuration than its files have, or its unit is newer.

        The digests decide where both are known, so that a changed comment needs no restart; else the files' times.
        """
        if not self.active or self.started_at is None:
            return False
        if self.unit_written_at is not None and self.unit_written_at > self.started_at:
            return True
        if self.loaded is not None and self.merged is not None:
            return self.loaded != self.merged
        return self.configured_at is not None and self.configured_at > self.started_at

    @property
    def disables_cri(self) -> bool:
        """Say whether the merged configuration switches the CRI plugin off."""
        return bool({*CRI_PARTS} & {*(load_toml(self.merged_text or "").get("disabled_plugins") or ())})

    @property
    def effective(self) -> dict[str, str]:
        """Return the values of the merged configuration, by the keys of `cri_settings`."""
        values: dict[str, str] = {}
        set_value(values, "enable_cdi", self.enable_cdi)
        set_value(values, "containerd.default_runtime_name", self.default_runtime)
        for runtime in self.runtimes:
            options = f"containerd.runtimes.{runtime.name}.options"
            set_value(values, f"{options}.BinaryName", runtime.binary)
            set_value(values, f"{options}.SystemdCgroup", runtime.systemd_cgroup)
        return values

    @property
    def texts(self) -> dict[str, str | None]:
        """Return path -> text of the root file and of all drop-ins."""
        return {self.config_path: self.config_text, **{drop_in.path: drop_in.text for drop_in in self.drop_ins}}

    @property
    def others(self) -> list[DropIn]:
        """Return the imported drop-ins that are not gpunode's, in the order of reading."""
        return [drop_in for drop_in in self.drop_ins if drop_in.imported and drop_in.path != self.own_drop_in]

    def drop_in(self, path: str) -> DropIn | None:
        """Return the drop-in of that path."""
        return next((drop_in for drop_in in self.drop_ins if drop_in.path == path), None)


# A list of imports is edited in time by the square of its length.
_MOST_DROP_INS = 500


def _drop_ins(lines: list[str], config: str, root: str | None, version: str | None) -> tuple[DropIn, ...]:
    """Return the drop-ins in the order in which they are read, then those that no file imports."""
    rows = repeated(lines, "drop_in")
    if len(rows) > _MOST_DROP_INS:
        raise ParseError(f"containerd reads {len(rows)} drop-ins; up to {_MOST_DROP_INS} are read")
    texts: dict[str, str | None] = {config: root}
    for line in rows:
        encoded, _, path = line.partition(" ")
        texts[normpath(path)] = decoded({"drop_in": encoded}, "drop_in") if encoded != "-" else ""
    order = read_order(config, texts, version)
    documents = {path: _document(text or "", version) for path, text in texts.items()}
    parsed = [document if isinstance(document := documents[path], dict) else {} for path in order]
    try:
        sections = dict(zip(order, counted(parsed, version or ""), strict=True))
    except ConfigurationRefused:
        sections = {}  # The version of containerd is not known.
    table = version is None or default_table_counts(version)
    return tuple(
        _drop_in(path, texts[path], path in order, documents[path], sections.get(path, CRI_PLUGINS), table)
        for path in (*order, *sorted({*texts} - {*order}))
        if path != config
    )


def _document(text: str, version: str | None) -> dict[str, Any] | str:
    """Return what a file has, or why it cannot be parsed."""
    try:
        return as_read(plain(text), version)
    except ConfigurationRefused as error:
        return str(error)


def _drop_in(
    path: str, text: str | None, imported: bool, document: dict[str, Any] | str, plugins: Iterable[str], table: bool
) -> DropIn:
    try:
        if isinstance(document, str):
            raise ParseError(document)
        says = cri_settings(document, table, plugins)
        section = any(plugin in document.get("plugins", {}) for plugin in plugins)
    except ParseError as error:
        return DropIn(path, imported=imported, error=str(error), text=text)
    return DropIn(path, tuple(sorted(says.items())), imported, section, None, text)


def _digest(dump: str) -> str:
    """Return the digest of a dump without its imports, as on the node: containerd 1 prints those in any order."""
    lines = [line for line in dump.removesuffix("\n").split("\n") if not line.startswith("imports =")]
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


# The digest of a dump that failed.
_EMPTY = hashlib.sha256(b"").hexdigest()
# A restart records the digest before the old daemon stops, which may take as long, in seconds.
_RECORDED_BEFORE_START = 300.0


def _loaded(recorded: str | None, started: float | None) -> str | None:
    """Return the digest that was recorded for the last start of the daemon."""
    digest, _, when = (recorded or "").partition(" ")
    at = timestamp(when) if when else None
    if digest in ("", _EMPTY) or at is None or started is None or at < started - _RECORDED_BEFORE_START:
        return None
    return digest


def _cri_state(plugin_lines: list[str]) -> str | None:
    """Return the CRI plugin's state from `ctr plugins ls` rows (TYPE ID PLATFORMS STATUS).

    containerd 2.x has a runtime part next to the gRPC service; the worse of the two counts.
    """
    parts = (["io.containerd.grpc.v1", "cri"], ["io.containerd.cri.v1", "runtime"])
    rows = [cells for line in plugin_lines if len(cells := line.split()) >= 3 and cells[:2] in parts]
    return next((cells[-1] for cells in rows if cells[-1] != "ok"), "ok") if rows else None


def _latest(times: list[str]) -> float | None:
    return max((timestamp(each) for each in times if each), default=None)


def parse_containerd(lines: list[str]) -> Containerd:
    """Parse the containerd probe's lines (gpunode/components/runtimes/containerd/state.sh)."""
    found = values(lines)
    if "no_file" in found:
        raise ParseError(f"{found['no_file'][:200]!r} is no regular file; put containerd's configuration there again")
    merged = decoded(found, "merged")
    version = program_version(found.get("version", "").partition("containerd ")[2] or found.get("version"))
    document = merged_document(merged, version) if merged else {}
    default, runtimes = runtimes_of(document)
    started = seconds(found["started"]) if "started" in found else None
    config, root = found.get("config", "/etc/containerd/config.toml"), decoded(found, "text")
    return Containerd(
        version=version,
        binary=found.get("binary"),
        config_path=config,
        config_text=root if "text" in found else "",
        **daemon(lines),
        started_at=started,
        configured_at=_latest(repeated(lines, "written")),
        default_runtime=default,
        runtimes=runtimes,
        cri_plugin=_cri_state(repeated(lines, "plugin")),
        shims=number(found.get("shims", "0")),
        enable_cdi=cdi_of(document),
        drop_ins=_drop_ins(lines, config, root, version),
        merged=_digest(merged) if merged else None,
        loaded=_loaded(found.get("loaded"), started),
        unit_written_at=_latest(repeated(lines, "unit_written")),
        merged_text=merged,
        unit=found.get("unit", UNIT),
        generated="generated" in found,
        own_drop_in=f"{found['drop_ins']}/{PATH.rpartition('/')[2]}" if "drop_ins" in found else PATH,
        cri_reason=printable(found.get("cri_reason", "")).strip() or None,
    )
