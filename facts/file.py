"""Files: of any kind, and NVIDIA's .run files."""

from __future__ import annotations

import shlex

from gpunode.base import file as file_state
from gpunode.base.probe import Probe
from gpunode.components import runfile
from gpunode.facts.base import NodeFact, probe_command


class File(NodeFact[file_state.File]):
    """Read a file's digest, mode, owner and group."""

    parse = staticmethod(file_state.parse_file)

    def command(self, path: str) -> Probe:  # type: ignore[override]
        """Return the probe for `path`."""
        file = shlex.quote(path)
        return probe_command(
            f'[ -f {file} ] && {{ echo "sha256=$(sha256sum < {file} | cut -d" " -f1)"; '
            f"stat --printf='mode=%a\\nowner=%U\\ngroup=%G\\n' {file}; }}"
        )


class FetchedRunfile(NodeFact[runfile.FetchedRunfile]):
    """Read whether a .run file is there, and the SHA-256 that it had when it came.

    It is not computed anew: that takes seconds for each reading, and is done before each time that the file is run.
    """

    parse = staticmethod(runfile.parse_fetched)

    def command(self, path: str) -> Probe:  # type: ignore[override]
        """Return the probe for the file at `path`."""
        file, stamp = shlex.quote(path), shlex.quote(f"{path}.sha256")
        return probe_command(f'[ -f {file} ] && echo present=yes\n[ -f {stamp} ] && echo "sha256=$(head -n 1 {stamp})"')
