"""Free disk space."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.system.disk import Disk as Reading
from gpunode.system.disk import parse_disk


class Disk(NodeFact[Reading]):
    """Read the free space where drivers, CUDA, package archives and initial file systems go."""

    probe = shell_text("system/disk", FOLDERS="/usr /usr/local /var /boot")
    parse = staticmethod(parse_disk)
