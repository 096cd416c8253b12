"""A node's part in an IMEX domain."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.imex.state import RECORD, parse_imex
from gpunode.components.imex.state import Imex as Reading
from gpunode.facts.base import UNITS, NodeFact
from gpunode.settings.imex import known


class Imex(NodeFact[Reading]):
    """Read the list of nodes, the service, and what its daemon says of the domain."""

    probe = shell_text(
        "components/imex/state",
        shared=(UNITS.of(known().unit),),
        NODES=known().nodes_file,
        RECORD=RECORD,
        CONFIG=known().config_file,
        CHANNEL=known().channel_device,
    )
    parse = staticmethod(parse_imex)
