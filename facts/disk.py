"""Free disk space."""

from __future__ import annotations

from facts.base import NodeFact
from gpunode.disk import Disk as Reading
from gpunode.disk import parse_disk


class Disk(NodeFact[Reading]):
    """Read the free space where drivers, CUDA, package archives and initial file systems go."""

    probe = r"""
for folder in /usr /usr/local /var /boot; do
  df -Pk "$folder" | awk -v folder="$folder" 'NR==2{print "free=" folder " " $4 " " $6}'
done
"""
    parse = staticmethod(parse_disk)
