"""DCGM on the host, and what it says of the GPUs' health."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.dcgm.state import ENGINE, ENGINE_FILE, EXPORTER, EXPORTER_FILE, PATHS, PODS, parse_dcgm
from gpunode.components.dcgm.state import Dcgm as Reading
from gpunode.facts.base import UNITS, NodeFact
from gpunode.facts.packages import PACKAGES


class Dcgm(NodeFact[Reading]):
    """Read DCGM's packages and units, by what its exporter runs, and the GPUs' health where gpunode has it watched."""

    probe = shell_text(
        "components/dcgm/state",
        shared=(PACKAGES, UNITS.of(ENGINE, EXPORTER)),
        FILES=" ".join(PATHS),
        ENGINE_FILE=ENGINE_FILE,
        EXPORTER_FILE=EXPORTER_FILE,
        PODS=PODS,
    )
    parse = staticmethod(parse_dcgm)
