"""A node's part in a Slurm cluster."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.slurm.state import FILES, FOLDER, GRES, parse_slurm
from gpunode.components.slurm.state import Slurm as Reading
from gpunode.facts.base import UNITS, NodeFact


class Slurm(NodeFact[Reading]):
    """Read slurmd, the files that it reads, the devices that it could offer, and what slurmctld says of the node."""

    probe = shell_text(
        "components/slurm/state",
        shared=(UNITS.of("slurmd.service", "slurmctld.service"),),
        FOLDER=FOLDER,
        FILES=" ".join(FILES),
        GRES=GRES,
    )
    parse = staticmethod(parse_slurm)
