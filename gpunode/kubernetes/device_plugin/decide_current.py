"""What is to be done about the plugin's pods on a node whose MIG layout changed: they look at its devices only once."""

from __future__ import annotations

from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.components.mig.boot import MigBoot
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART

STALE_PODS = cluster_finding(
    "pods that know former MIG devices",
    "Pods hold MIG devices that are no longer there.",
    "The device plugin offers devices that no program can open until its pod restarts.",
    cause="they started before the MIG layout changed",
)


def decide_current(
    settings: Settings, node: str, sets: tuple[str, ...], view: View, boot: MigBoot
) -> Decision[tuple[str, ...]]:
    """Return which of the plugin's pods on a node are to begin anew; a change is their names.

    + sets: the DaemonSets that the node has its plugin's pods of
    + boot: what says when a change of the layout was recorded last
    """
    if settings.mig.config is None or settings.device_plugin.method not in (*BY_CHART, "manifest"):
        return Decision(())
    names = tuple(pod.name for pod in view.stale_plugins(sets, node, boot.recorded_at or 0))
    said = ", ".join(names)
    item = STALE_PODS.compared(said or None, "none", not names)
    if not names:
        return Decision((item,))
    return Decision((item,), (Step(f"begin {said} anew", (item,), Disruption.nothing, change=names),))
