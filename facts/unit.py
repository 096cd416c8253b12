"""One systemd unit in one round trip."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.probe import Probe
from gpunode.unit import Unit as Reading
from gpunode.unit import parse_unit


class Unit(NodeFact[Reading]):
    """Read whether a unit exists, runs and starts at boot."""

    parse = staticmethod(parse_unit)

    def command(self, unit: str) -> Probe:  # type: ignore[override]
        """Return the probe for `unit`."""
        properties = "LoadState,ActiveState,SubState,UnitFileState,NeedDaemonReload"
        return probe_command(f"systemctl show -p {properties} {shlex.quote(unit)}")
