"""Podman on a node: its version, and which runtime its files of settings name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpunode.base.probe_output import files, repeated, values
from gpunode.base.reading import Reading
from gpunode.base.structured_text import TextError, load_toml
from gpunode.base.versions import program_version


@dataclass(frozen=True)
class Podman(Reading):
    """Hold podman as it is.

    `version` is None where it is not there. `default_runtime` is what its files name, merged as containers.conf(5)
    says, None where none does: then podman takes crun or runc; `said_in` is the file with the last word. `runtimes`
    are (name, paths) of [engine.runtimes], `runtimes_in` (name, the file that says so last); `unreadable` are
    `PATH: why` of files that are no TOML. `programs` are those of crun and runc that are on the PATH.
    """

    version: str | None = None
    default_runtime: str | None = None
    said_in: str | None = None
    runtimes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    runtimes_in: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def paths(self, runtime: str) -> tuple[str, ...]:
        """Return where podman looks for a runtime, as far as its files say."""
        return dict(self.runtimes).get(runtime, ())


def parse_podman(lines: list[str]) -> Podman:
    """Parse the podman probe's lines (gpunode/components/runtimes/podman/state.sh)."""
    default = said_in = None
    runtimes: dict[str, tuple[str, ...]] = {}
    runtimes_in: dict[str, str] = {}
    unreadable = []
    for path, text in files(lines):
        try:
            engine = load_toml(text).get("engine", {})
        except TextError as error:
            unreadable.append(f"{path}: {error}")
            continue
        if isinstance(engine, dict):
            if isinstance(engine.get("runtime"), str):
                default, said_in = engine["runtime"], path
            runtimes |= _runtimes(engine.get("runtimes"))
            runtimes_in |= dict.fromkeys(_runtimes(engine.get("runtimes")), path)
    version = program_version(values(lines).get("podman"))
    every, where = tuple(sorted(runtimes.items())), tuple(sorted(runtimes_in.items()))
    return Podman(version, default, said_in, every, where, tuple(unreadable), tuple(repeated(lines, "program")))


def _runtimes(table: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(table, dict):
        return {}
    return {name: tuple(map(str, paths)) for name, paths in table.items() if isinstance(paths, list)}
