"""The archives that apt reads, and the files that tell it to."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.facts.base import NodeFact
from gpunode.packages.apt_archive import AptArchive as Reading
from gpunode.packages.apt_archive import parse_apt_archive

# gpunode's own entry of the distribution's archive: the components that the node's entries lack.
SOURCE = "/etc/apt/sources.list.d/gpunode-distribution.sources"


class AptArchive(NodeFact[Reading]):
    """Read what apt reads, by apt's own account, and the text of each file that names it."""

    probe = shell_text("packages/apt_archive", SOURCE=SOURCE)
    parse = staticmethod(parse_apt_archive)
