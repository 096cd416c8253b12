"""The schedulers of a control-plane host: its static manifest, gpunode's configuration files, and what runs."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.kubernetes.gpushare.configuration import Configuration, Extender, configuration
from gpunode.kubernetes.gpushare.manifest import parse_manifest
from gpunode.kubernetes.gpushare.patch import patched, unpatched


@dataclass(frozen=True)
class SchedulerState(Reading):
    """Hold the manifest's text (None: there is none), path -> sha256 of configurations, and the words of processes."""

    manifest: str | None
    configurations: Mapping[str, str]
    processes: tuple[tuple[str, ...], ...]

    def runs_by(self, path: str) -> bool:
        """Say whether a scheduler runs by a configuration file."""
        return any(f"--config={path}" in words for words in self.processes)


@dataclass(frozen=True)
class SchedulerChange:
    """Hold what a control-plane host is to have: the manifest, the configuration it names (None: none), its health."""

    manifest: str
    configuration: Configuration | None
    health: str


def wanted(manifest: str, extender: Extender | None, version: str | None) -> SchedulerChange:
    """Return what a manifest becomes with an extender, or with none of gpunode's; raise SchedulerError.

    + version: of the cluster, for a manifest whose image says none
    """
    clean = unpatched(manifest)
    found = parse_manifest(clean)
    if extender is None:
        return SchedulerChange(clean, None, found.health.address)
    made = configuration(found.version or version or "", found.options, extender)
    return SchedulerChange(patched(clean, made.path), made, found.health.address)


def parse_scheduler(lines: list[str]) -> SchedulerState:
    """Parse the lines of facts/scheduler.py."""
    files = (line.split(" ", 1) for line in repeated(lines, "configuration"))
    try:
        processes = tuple(
            tuple(base64.b64decode(each, validate=True).decode("utf-8", "replace").split("\n")[:-1])
            for each in repeated(lines, "process")
        )
    except (binascii.Error, ValueError) as error:
        raise ParseError(f"a process is not base64: {error}") from error
    return SchedulerState(decoded(values(lines), "manifest"), {path: digest for digest, path in files}, processes)
