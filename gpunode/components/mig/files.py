"""The files that bring a node's MIG layout back at every boot, as they are to be."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from gpunode.base.shell_file import script_file
from gpunode.base.template import rendered
from gpunode.components.mig.boot import NAME, RECORD, SCRIPT, UNIT
from gpunode.components.toolkit.specification import CDI_MARK, OWN_SPECIFICATION

# For the transaction, its undoing, and the unit that runs at boot.
FUNCTIONS = script_file("mig_asking", "mig_holders", "mig_creating", "mig_reaching", "mig_cdi").strip()


@cache
def desired_files() -> Mapping[str, str]:
    """Return path -> text of the unit and of its script."""
    script = rendered(
        "gpunode-mig-layout", functions=FUNCTIONS, name=NAME, cdi=OWN_SPECIFICATION, mark=shlex.quote(CDI_MARK)
    )
    unit = rendered("gpunode-mig-layout.service", script=SCRIPT, record=RECORD)
    return MappingProxyType({UNIT: unit, SCRIPT: script})
