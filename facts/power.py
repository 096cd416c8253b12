"""What gpunode keeps of the GPUs' power limits and clocks."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.power.state import NAME, NOTE, SCRIPT, UNIT, parse_power
from gpunode.components.power.state import Power as Reading
from gpunode.facts.base import UNITS, NodeFact


class Power(NodeFact[Reading]):
    """Read gpunode's unit and script of power limits and clocks, and which clocks were locked."""

    probe = shell_text("components/power/state", shared=(UNITS.of(NAME),), SCRIPT=SCRIPT, UNIT=UNIT, NOTE=NOTE)
    parse = staticmethod(parse_power)
