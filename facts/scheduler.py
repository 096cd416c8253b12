"""kube-scheduler of a control-plane host."""

from __future__ import annotations

from gpunode.facts.base import NodeFact, probe_command
from gpunode.gpushare.configuration import FOLDER
from gpunode.gpushare.state import SchedulerState, parse_scheduler
from gpunode.probe import Probe, shell_text


class Scheduler(NodeFact[SchedulerState]):
    """Read the static manifest, gpunode's configuration files, and the command lines of what runs."""

    parse = staticmethod(parse_scheduler)

    def command(self, manifest: str) -> Probe:  # type: ignore[override]
        """Return the probe for the manifest at `manifest`."""
        return probe_command(shell_text("gpushare/scheduler", MANIFEST=manifest, FOLDER=FOLDER))
