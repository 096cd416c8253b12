"""Podman on a node: its version, and the runtimes of its configuration files."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe_output import files, repeated, values
from gpunode.base.reading import Reading
from gpunode.base.structured_text import TextError, load_toml
from gpunode.base.versions import program_version


@dataclass(frozen=True)
class Podman(Reading):
    """The podman of one node.

    version: None where podman is missing
    default_runtime: of its files, merged by containers.conf(5); None: podman chooses crun or runc
    said_in: the file that sets the default runtime last
    runtimes: (name, paths) of [engine.runtimes]; runtimes_in: (name, the file that sets it last)
    unreadable: `PATH: why` of files that are not TOML
    programs: which of crun and runc are on the PATH
    """

    version: str | None = None
    default_runtime: str | None = None
    said_in: str | None = None
    runtimes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    runtimes_in: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def paths(self, runtime: str) -> tuple[str, ...]:
        """Return the paths of a runtime in the files."""
        return dict(self.runtimes).get(runtime, ())


def parse_podman(lines: list[str]) -> Podman:
    """Parse the podman probe's lines (gpunode/components/runtimes/podman/state.sh)."""
    default = said_in = None
    runtimes: dict[str, tuple[tuple[str, ...], str]] = {}
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
            if isinstance(table := engine.get("runtimes"), dict):
                lists = {name: paths for name, paths in table.items() if isinstance(paths, list)}
                runtimes |= {name: (tuple(map(str, paths)), path) for name, paths in lists.items()}
    version = program_version(values(lines).get("podman"))
    every = tuple((name, paths) for name, (paths, _) in sorted(runtimes.items()))
    where = tuple((name, path) for name, (_, path) in sorted(runtimes.items()))
    return Podman(version, default, said_in, every, where, tuple(unreadable), tuple(repeated(lines, "program")))
