"""One file: content, mode and owner in one round trip."""

from __future__ import annotations

import shlex

from gpunode.base.file import File as Reading
from gpunode.base.file import parse_file
from gpunode.base.probe import Probe
from gpunode.facts.base import NodeFact, probe_command


class File(NodeFact[Reading]):
    """Read a file's digest, mode, owner and group."""

    parse = staticmethod(parse_file)

    def command(self, path: str) -> Probe:  # type: ignore[override]
        """Return the probe for `path`."""
        file = shlex.quote(path)
        return probe_command(
            f'[ -f {file} ] && {{ echo "sha256=$(sha256sum < {file} | cut -d" " -f1)"; '
            f"stat --printf='mode=%a\\nowner=%U\\ngroup=%G\\n' {file}; }}"
        )
