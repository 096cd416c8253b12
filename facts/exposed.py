"""Files that root runs by and that others than root may write."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.exposed import FILES, parse_exposed
from gpunode.system.exposed import Exposed as Reading


class Exposed(NodeFact[Reading]):
    """Read which files of containerd, docker, CRI-O, the toolkit, CDI and systemd others than root may write."""

    probe = shell_text("system/exposed", FILES=" ".join(FILES))
    parse = staticmethod(parse_exposed)
