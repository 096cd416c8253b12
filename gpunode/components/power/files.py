"""The unit that brings power limit and clocks back when the driver is loaded, and the script that it runs.

Nothing of the driver's own keeps them: nvidia-persistenced only holds a GPU open, and no module parameter sets them.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpunode.base.shell_file import script_file
from gpunode.base.template import rendered
from gpunode.components.power.rules import Rule

NAME = "gpunode-power.service"
UNIT = f"/etc/systemd/system/{NAME}"
SCRIPT = "/usr/local/lib/gpunode/power"
FILES = (SCRIPT, UNIT)
# Which clocks were locked since the driver was loaded, which no driver tells.
NOTE = "/run/gpunode/power"


def texts(every: Sequence[Rule]) -> dict[str, str]:
    """Return path -> text; none where there are no rules."""
    if not every:
        return {}
    lines = "\n".join(rule.line for rule in every)
    functions = script_file("power_apply").strip()
    return {
        SCRIPT: rendered("gpunode-power", rules=lines, functions=functions, note=NOTE),
        UNIT: rendered("gpunode-power.service", script=SCRIPT),
    }
