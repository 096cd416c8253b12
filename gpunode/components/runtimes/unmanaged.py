"""Container runtimes that other programs bring and configure: k3s, RKE2, k0s, MicroK8s, docker as a snap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpunode.base.comparison import finding_message
from gpunode.base.findings import Finding
from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError, Reading
from gpunode.base.tables.reading import Row, table
from gpunode.system.service import starts_at_boot

if TYPE_CHECKING:
    from gpunode.settings import Settings


@dataclass(frozen=True)
class UnmanagedRow(Row):
    """One such program: gpunode/data/unmanaged_runtimes.yaml says what its fields mean."""

    name: str
    units: tuple[str, ...]
    config: str
    remedy: str
    socket: str = ""
    programs: str = ""
    ctr: str = ""


rows = table(tuple[UnmanagedRow, ...], "unmanaged_runtimes.yaml")


def row_of(unit: str) -> UnmanagedRow | None:
    """Return the program that a unit belongs to; None where it is none of these programs."""
    return next((row for row in rows() if unit in row.units), None)


@dataclass(frozen=True)
class InstalledUnit(Reading):
    """One unit of such a program; active_state and file_state are systemd's."""

    name: str
    active_state: str
    file_state: str


@dataclass(frozen=True)
class Found(Reading):
    """One such program that a node runs, or starts at boot.

    unit: its unit; without one, the socket of a program that systemd does not run
    """

    name: str
    unit: str
    running: bool


@dataclass(frozen=True)
class Unmanaged(Reading):
    """What a node has of these programs: their installed units, and which of their files exist."""

    units: tuple[InstalledUnit, ...] = ()
    files: tuple[str, ...] = ()

    @property
    def found(self) -> tuple[Found, ...]:
        """Return the programs that bring a runtime of their own to this node."""
        return tuple(filter(None, map(self._found, rows())))

    def _found(self, row: UnmanagedRow) -> Found | None:
        own = [unit for unit in self.units if unit.name in row.units]
        if running := [unit.name for unit in own if unit.active_state in ("active", "activating", "reloading")]:
            # Without the socket it uses another runtime: a server without an agent, k3s with the node's containerd.
            return Found(row.name, running[0], True) if not row.socket or row.socket in self.files else None
        if starting := [unit.name for unit in own if starts_at_boot(unit.file_state)]:
            return Found(row.name, starting[0], False)
        serves = not own and row.socket and {row.socket, row.config} <= set(self.files)
        return Found(row.name, row.socket, True) if serves else None


def parse_unmanaged(lines: list[str]) -> Unmanaged:
    """Parse the probe's lines (gpunode/components/runtimes/unmanaged.sh); raise ParseError."""
    units = [line.split(" ") for line in repeated(lines, "unit")]
    if wrong := [unit for unit in units if len(unit) != 3]:
        raise ParseError(f"not a unit with its states: {' '.join(wrong[0])[:80]!r}")
    return Unmanaged(tuple(InstalledUnit(*unit) for unit in units), tuple(repeated(lines, "file")))


OTHER_RUNTIME = finding_message(
    "node",
    "runtime of another program",
    "A program on the node runs a containerd or docker of its own, which gpunode does not manage.",
    "k3s, RKE2, k0s, MicroK8s and docker as a snap write the configuration of their runtime by themselves. Whether its "
    "containers get GPUs is not judged, and a containerd that nothing uses is not installed for them.",
    remedies=tuple(row.remedy for row in rows()),
    classes=(),
)


def in_use(settings: Settings, actual: Unmanaged) -> tuple[tuple[Found, UnmanagedRow], ...]:
    """Return the programs with a runtime that these settings do not manage; none where containerd is switched off."""
    desired = settings.containerd
    if not desired.enabled and not settings.docker.enabled:
        return ()
    others = {row.name: row for row in rows() if desired.unit not in row.units}
    return tuple((each, others[each.name]) for each in actual.found if each.name in others)


def replaces_containerd(settings: Settings, actual: Unmanaged) -> bool:
    """Return whether nothing on the node would use a containerd: another program has its own, and no setting names one.

    Docker as a snap serves no kubelet.
    """
    if not settings.containerd.enabled or settings.containerd.model_fields_set:
        return False
    return any(row.socket or not settings.kubernetes.enabled for _, row in in_use(settings, actual))


def findings(settings: Settings, actual: Unmanaged) -> Iterator[Finding]:
    """Yield what is not judged: it changes no exit code, since no setting asks for it."""
    for each, row in in_use(settings, actual):
        cause = f"{each.name} ({each.unit}) has a container runtime of its own, which reads {row.config}"
        yield OTHER_RUNTIME.not_known(None, cause, row.remedy.format(unit=each.unit), of=each.name)
