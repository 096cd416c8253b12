"""What several components read of a node, once in a command: units of systemd, and nvidia-smi."""

from __future__ import annotations

from gpunode.base.probe import Shared, shell_text
from gpunode.system.smi import LEAST, QUERY, REMAPPED

# $SHOWN, and the functions `unit` and `says`. A part says of which units it wants to know.
UNITS = Shared(shell_text("system/unit"), variable="UNITS")

# $SMI: what nvidia-smi answered. A part may want the query on remapped rows, too.
SMI = Shared(
    shell_text("system/smi", QUERY=",".join(QUERY), LEAST=",".join(LEAST), REMAPPED=",".join(REMAPPED)), variable="ALSO"
)
