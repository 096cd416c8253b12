"""The Multi-Process Service on a node."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.mps import Mps as Reading
from gpunode.components.mps import parse_mps
from gpunode.components.mps.daemon import FOLDER
from gpunode.components.mps.daemon import UNITS as FILES
from gpunode.components.mps.environment import PATHS
from gpunode.components.mps.files import APPLY
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import UNITS

# Globs find what systemd has loaded; a name would have it loaded.
_DAEMONS = ("nvidia-mp[s].service", "nvidia-mps@*.service")


class Mps(NodeFact[Reading]):
    """Read the daemons of gpunode's units; whether one lives is told by its answer alone: sockets stay behind."""

    probe = shell_text(
        "components/mps/state", shared=(UNITS.of(*_DAEMONS),), FOLDER=FOLDER, FILES=" ".join((*FILES, APPLY, *PATHS))
    )
    parse = staticmethod(parse_mps)
