"""The Multi-Process Service on a node."""

from __future__ import annotations

from gpunode.facts.base import NodeFact
from gpunode.facts.shared import UNITS
from gpunode.mps import Mps as Reading
from gpunode.mps import parse_mps
from gpunode.mps.daemon import FOLDER
from gpunode.mps.daemon import UNITS as FILES
from gpunode.mps.environment import PATHS
from gpunode.mps.files import APPLY
from gpunode.probe import shell_text

# Globs find what systemd has loaded; a name would have it loaded.
_DAEMONS = ("nvidia-mp[s].service", "nvidia-mps@*.service")


class Mps(NodeFact[Reading]):
    """Read the daemons of gpunode's units; whether one lives is told by its answer alone: sockets stay behind."""

    probe = shell_text(
        "mps/state", shared=(UNITS.of(*_DAEMONS),), FOLDER=FOLDER, FILES=" ".join((*FILES, APPLY, *PATHS))
    )
    parse = staticmethod(parse_mps)
