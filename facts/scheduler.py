"""kube-scheduler of a control-plane host."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.gpushare.configuration import FOLDER
from gpunode.gpushare.state import SchedulerState, parse_scheduler
from gpunode.probe import Probe


class Scheduler(NodeFact[SchedulerState]):
    """Read the static manifest, gpunode's configuration files, and the command lines of what runs."""

    parse = staticmethod(parse_scheduler)

    def command(self, manifest: str) -> Probe:  # type: ignore[override]
        """Return the probe for the manifest at `manifest`."""
        path, folder = shlex.quote(manifest), shlex.quote(FOLDER)
        return probe_command(
            f'[ -f {path} ] && echo "manifest=$(base64 -w0 {path})"\n'
            f"for file in {folder}/scheduler-*.yaml; do\n"
            '  [ -f "$file" ] && echo "configuration=$(sha256sum < "$file" | cut -d" " -f1) $file"\n'
            "done\n"
            "for comm in /proc/[0-9]*/comm; do\n"
            '  name=; read -r name 2>/dev/null < "$comm" || continue\n'
            '  [ "$name" = kube-scheduler ] || continue\n'
            """  echo "process=$(tr '\\0' '\\n' 2>/dev/null < "${comm%/comm}/cmdline" | base64 -w0)"\n"""
            "done"
        )
