"""Files that root runs by and that others than root may write."""

from __future__ import annotations

from gpunode.exposed import FILES, parse_exposed
from gpunode.exposed import Exposed as Reading
from gpunode.facts.base import NodeFact
from gpunode.probe import shell_text


class Exposed(NodeFact[Reading]):
    """Read which files of containerd, docker, the toolkit, CDI and systemd others than root may write."""

    probe = shell_text("exposed", FILES=" ".join(FILES))
    parse = staticmethod(parse_exposed)
