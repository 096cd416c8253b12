"""Which containerd of a node is configured: that of containerd.service, a second one, or that of k3s, RKE2 or k0s."""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import commonpath

from gpunode.components.runtimes.unmanaged import row_of

UNIT = "containerd.service"


@dataclass(frozen=True)
class Source:
    """A containerd; empty fields follow from its unit.

    config: its root file
    programs: the folder of its binary; ctr: the command of its client; socket: that of its API
    generated: yes where the program of the unit writes the root file at each start
    """

    unit: str = UNIT
    config: str = ""
    programs: str = ""
    ctr: str = ""
    socket: str = ""
    generated: str = ""


def source_of(unit: str | None, config: str | None) -> Source:
    """Return the containerd of a unit and a file as settings give them, None where they do not."""
    row = row_of(unit or UNIT)
    if row is None:
        return Source(unit or UNIT, config or "")
    programs, data = row.programs, commonpath((row.config, row.programs or "/"))
    # Both are below the folder of its data, which may be another one (k3s --data-dir).
    if config and len(data) > 1 and config.endswith(inside := row.config.removeprefix(data)):
        programs = config.removesuffix(inside) + programs.removeprefix(data)
    return Source(unit or UNIT, config or row.config, programs, row.ctr, row.socket, "yes")
