"""One systemd unit on a node."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe_output import values
from gpunode.base.reading import ParseError, Reading


@dataclass(frozen=True)
class Unit(Reading):
    """Hold systemd's states of a unit as `systemctl show` names them."""

    load_state: str
    active_state: str
    sub_state: str
    unit_file_state: str | None

    @property
    def running(self) -> bool:
        """Say whether the unit is active, or on its way there."""
        return self.active_state in ("active", "activating", "reloading")

    @property
    def enabled(self) -> bool:
        """Say whether the unit starts at boot."""
        return starts_at_boot(self.unit_file_state)

    @property
    def masked(self) -> bool:
        """Say whether somebody forbade that it is ever started."""
        return is_masked(self.unit_file_state) or self.load_state == "masked"


def is_masked(unit_file_state: str | None) -> bool:
    """Judge systemd's UnitFileState: a masked unit is neither started nor enabled, until it is unmasked."""
    return unit_file_state in ("masked", "masked-runtime")


def unmask(unit: str) -> str:
    """Return what to do about a masked unit."""
    return f"`systemctl unmask {unit}` on the node"


def starts_at_boot(unit_file_state: str | None) -> bool:
    """Judge systemd's UnitFileState; a static or generated unit needs no enabling, `enabled-runtime` ends at a boot."""
    return unit_file_state in ("enabled", "static", "alias", "generated")


def parse_unit(lines: list[str]) -> Unit:
    """Parse LoadState, ActiveState, SubState and UnitFileState as `systemctl show` prints them."""
    found = values(lines)
    if not found.get("LoadState") or not found.get("ActiveState"):
        raise ParseError("systemd gave no answer")
    return Unit(found["LoadState"], found["ActiveState"], found.get("SubState", ""), found.get("UnitFileState"))
