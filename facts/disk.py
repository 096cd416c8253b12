"""Free disk space."""

from __future__ import annotations

from gpunode.disk import Disk as Reading
from gpunode.disk import parse_disk
from gpunode.facts.base import NodeFact
from gpunode.probe import shell_text


class Disk(NodeFact[Reading]):
    """Read the free space where drivers, CUDA, package archives and initial file systems go."""

    probe = shell_text("disk", FOLDERS="/usr /usr/local /var /boot")
    parse = staticmethod(parse_disk)
