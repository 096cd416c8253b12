"""The record of what was applied, and the files in it as they are now."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.node.components import PATHS as OWN
from gpunode.system.applied import FOLDERS, PATH, parse_applied
from gpunode.system.applied import Applied as Reading


class Applied(NodeFact[Reading]):
    """Read the record, and digest, mode and owners of each own file, recorded or not: one process for all of them."""

    probe = shell_text("system/applied", RECORD=PATH, FOLDERS=" ".join(FOLDERS), OWN=" ".join(OWN))
    parse = staticmethod(parse_applied)
