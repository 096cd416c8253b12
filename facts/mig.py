"""Multi-Instance GPU on a node."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.mig.smi import LISTS, parse_mig
from gpunode.components.mig.state import Mig as Reading
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import SMI

_LISTS = "\n".join(f"{key} {arguments}" for key, arguments in LISTS.items())


class Mig(NodeFact[Reading]):
    """Read MIG's modes, instances and own lists by nvidia-smi."""

    probe = shell_text("components/mig/smi", shared=(SMI,), LISTS=_LISTS)
    parse = staticmethod(parse_mig)
