"""NVIDIA's .run files on a node."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe
from gpunode.components.runfile import FetchedRunfile as Reading
from gpunode.components.runfile import parse_fetched
from gpunode.facts.base import NodeFact, probe_command


class FetchedRunfile(NodeFact[Reading]):
    """Read whether a .run file is there, and the SHA-256 that it had when it came.

    It is not computed anew: that takes seconds for each reading, and is done before each time that the file is run.
    """

    parse = staticmethod(parse_fetched)

    def command(self, path: str) -> Probe:  # type: ignore[override]
        """Return the probe for the file at `path`."""
        file, stamp = shlex.quote(path), shlex.quote(f"{path}.sha256")
        return probe_command(f'[ -f {file} ] && echo present=yes\n[ -f {stamp} ] && echo "sha256=$(head -n 1 {stamp})"')
