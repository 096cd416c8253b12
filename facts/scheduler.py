"""kube-scheduler of a control-plane host."""

from __future__ import annotations

from gpunode.base.probe import Probe, shell_text
from gpunode.facts.base import NodeFact, probe_command
from gpunode.kubernetes.gpushare.configuration import FOLDER
from gpunode.kubernetes.gpushare.decide import SchedulerState, parse_scheduler


class Scheduler(NodeFact[SchedulerState]):
    """Read the static manifest, gpunode's configuration files, and the command lines of what runs."""

    parse = staticmethod(parse_scheduler)

    def command(self, manifest: str) -> Probe:  # type: ignore[override]
        """Return the probe for the manifest at `manifest`."""
        return probe_command(shell_text("kubernetes/gpushare/scheduler", MANIFEST=manifest, FOLDER=FOLDER))
