"""The record of what was applied, and the files in it as they are now."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.applied import FOLDERS, PATH, parse_applied
from gpunode.applied import Applied as Reading
from gpunode.probe import shell_text


class Applied(NodeFact[Reading]):
    """Read the record, and digest, mode and owners of each regular file in it: one process for all of them."""

    probe = shell_text("applied", RECORD=PATH, FOLDERS=" ".join(FOLDERS))
    parse = staticmethod(parse_applied)
