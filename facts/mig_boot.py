"""What brings the MIG layout back at a boot."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.mig.boot import NAME, RECORD, SCRIPT, UNIT, parse_mig_boot
from gpunode.components.mig.boot import MigBoot as Reading
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import UNITS
from gpunode.system.running_boot import RECORD as REBOOTS


class MigBoot(NodeFact[Reading]):
    """Read gpunode's unit for MIG, its script, and the layout that it brings back."""

    probe = shell_text(
        "components/mig/boot",
        shared=(UNITS.of(NAME),),
        SERVICE=UNIT,
        SCRIPT=SCRIPT,
        RECORD=RECORD,
        REBOOTS=REBOOTS,
        NAME=NAME,
    )
    parse = staticmethod(parse_mig_boot)
