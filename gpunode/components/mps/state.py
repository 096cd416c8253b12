"""What is there of MPS on a node: the program, the daemons that gpunode's units run, and what each of them answers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.probe_output import cells, number, repeated, timestamp, values
from gpunode.base.reading import ParseError, Reading
from gpunode.components.mps.daemon import FOLDER, NODE
from gpunode.system.service import seconds, starts_at_boot

# It becomes a part of a unit and of a script.
_PATH = re.compile(r"/[A-Za-z0-9._/+-]+", re.ASCII)


@dataclass(frozen=True)
class MpsDaemon(Reading):
    """Hold one daemon by its unit.

    `answers` says whether it answers a command: its sockets prove nothing, for they stay behind. `readings` are
    (question, answer) of its settings; `servers` and `clients` count its processes (clients: None where it runs and
    does not answer); `errors` counts what its log calls a failure since it was started, `last_error` is the last of
    them. `stale`: it runs since before its unit was written. `settings` is the digest (SHA-256) of the file that its
    unit applies at a start; None where there is none. `exclusive`: whether its unit sets the compute mode
    EXCLUSIVE_PROCESS; None where there is no unit of gpunode's.
    """

    unit: str
    active: bool
    enabled: bool
    answers: bool
    stale: bool
    settings: str | None
    readings: tuple[tuple[str, str], ...]
    servers: int
    clients: int | None
    errors: int = 0
    last_error: str | None = None
    exclusive: bool | None = None

    @property
    def settings_path(self) -> str:
        """Return where the settings stand that its unit applies."""
        name = self.unit.removeprefix("nvidia-mps@").removesuffix(".service") if "@" in self.unit else NODE
        return f"{FOLDER}/{name}.settings"

    def reads(self, question: str) -> str | None:
        """Return what it answers to a question; None where it was not asked or does not answer."""
        return dict(self.readings).get(question) if self.answers else None


@dataclass(frozen=True)
class Mps(Reading):
    """Hold the path of the control program (None: not installed), digests of gpunode's files, and the daemons.

    `files` are (path, SHA-256) of what gpunode wrote for all of them, `foreign` the paths where somebody else's stands.
    """

    program: str | None = None
    files: tuple[tuple[str, str], ...] = ()
    daemons: tuple[MpsDaemon, ...] = ()
    foreign: tuple[str, ...] = ()

    def daemon(self, unit: str) -> MpsDaemon | None:
        """Return the daemon of a unit."""
        return next((each for each in self.daemons if each.unit == unit), None)


def parse_mps(lines: list[str]) -> Mps:
    """Parse the probe's lines: `file=PATH DIGEST`, `foreign=PATH`, and `daemon=` with cells divided by tabs.

    The cells: unit, ActiveState, UnitFileState, answers (yes or no), when it started and when its unit was written
    (nothing where it does not run), exclusive (yes, no or nothing), digest, servers, clients, errors, last error.
    Beside it stands `reading=UNIT\tQUESTION\tANSWER`.
    """
    found = values(lines)
    readings: dict[str, list[tuple[str, str]]] = {}
    for line in repeated(lines, "reading"):
        unit, question, answer = cells(line, 3)
        readings.setdefault(unit, []).append((question, answer))
    every = []
    for line in sorted(repeated(lines, "daemon"), key=_name):
        unit, active, enabled, answers, started, written, exclusive, digest, servers, clients, errors, last = cells(
            line, 12
        )
        every.append(
            MpsDaemon(
                unit=unit,
                active=active == "active",
                enabled=starts_at_boot(enabled),
                answers=answers == "yes",
                stale=bool(started) and timestamp(written) > seconds(started),
                settings=digest or None,
                readings=tuple(readings.get(unit, ())),
                servers=number(servers),
                clients=None if clients == "?" else number(clients),
                errors=number(errors),
                last_error=last or None,
                exclusive=exclusive == "yes" if exclusive else None,
            )
        )
    program = found.get("program")
    if program is not None and _PATH.fullmatch(program) is None:
        raise ParseError(f"not a program's path: {program[:80]!r}")
    files = [tuple(line.split(" ", 1)) for line in repeated(lines, "file")]
    if any(len(pair) != 2 for pair in files):
        raise ParseError("a file's line has no digest")
    return Mps(
        program, tuple((path, digest) for path, digest in files), tuple(every), tuple(repeated(lines, "foreign"))
    )


def _name(line: str) -> str:
    """Return the name of a daemon by its unit, by which they are told: a GPU's index, or behind these the node's."""
    return line.partition("\t")[0].removeprefix("nvidia-mps@").removesuffix(".service")
