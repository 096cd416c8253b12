"""Multi-Instance GPU on a node, and what brings its layout back at a boot."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.mig import boot, state
from gpunode.components.mig.smi import LISTS, parse_mig
from gpunode.facts.base import SMI, UNITS, NodeFact
from gpunode.system.running_boot import RECORD as REBOOTS

_LISTS = "\n".join(f"{key} {arguments}" for key, arguments in LISTS.items())


class Mig(NodeFact[state.Mig]):
    """Read MIG's modes, instances and own lists by nvidia-smi."""

    probe = shell_text("components/mig/smi", shared=(SMI,), LISTS=_LISTS)
    parse = staticmethod(parse_mig)


class MigBoot(NodeFact[boot.MigBoot]):
    """Read gpunode's unit for MIG, its script, and the layout that it brings back."""

    probe = shell_text(
        "components/mig/boot",
        shared=(UNITS.of(boot.NAME),),
        SERVICE=boot.UNIT,
        SCRIPT=boot.SCRIPT,
        RECORD=boot.RECORD,
        REBOOTS=REBOOTS,
        NAME=boot.NAME,
    )
    parse = staticmethod(boot.parse_mig_boot)
