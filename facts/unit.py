"""One systemd unit in one round trip."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, Text
from gpunode.facts.base import UNITS, NodeFact
from gpunode.system.unit import Unit as Reading
from gpunode.system.unit import parse_unit


class Unit(NodeFact[Reading]):
    """Read whether a unit exists, runs and starts at boot."""

    parse = staticmethod(parse_unit)

    def command(self, unit: str) -> Probe:  # type: ignore[override]
        """Return the probe for `unit`, by its full name (`ssh.service`); what several ask of systemd is asked once."""
        told = 'for name in LoadState ActiveState SubState UnitFileState; do says $name; echo "$name=$SAID"; done'
        return Probe([(None, Text(f"unit {shlex.quote(unit)} || exit 0\n{told}", (UNITS.of(unit),)))])
