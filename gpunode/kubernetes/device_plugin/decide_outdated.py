"""Which of the plugin's pods on a node restart, because they are of an earlier release or know former MIG devices.

A release whose DaemonSets are OnDelete leaves its pods: gpunode restarts those that their DaemonSet would now make
otherwise, and all of a node that gets another configuration: a pod that runs sees a new entry of its ConfigMap up to a
minute late. The end of an MPS daemon with clients is decided in decide_restart.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode.base.comparison import RESTART
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.components.mig.boot import MigBoot
from gpunode.kubernetes.device_plugin.view import FEATURE_DISCOVERY, MPS_DAEMON, View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, LabelChange
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


OUTDATED_PODS = cluster_finding(
    "pods of an earlier release",
    "Pods of the device plugin still run by an earlier release.",
    "They are replaced node by node, because their MPS daemons restart under clients.",
    cause="the release has changed since they started",
    classes=RESTART,
)


def decide_outdated(
    settings: Settings, node: ClusterNode, view: View, label: LabelChange | None = None
) -> Decision[tuple[str, ...]]:
    """Return which of the plugin's pods on a node are to begin anew; a change is their names.

    Nothing is found where the controller begins them anew by itself.

    + label: what is to be done about the node's labels before; None: nothing
    """
    sets = sets_that_stay(settings, view)
    if not sets:
        return Decision(())
    outdated = tuple(pod.name for pod in view.outdated(sets, node.name))
    said = ", ".join(outdated) or None
    found = OUTDATED_PODS.compared(said, "none", not outdated)
    follows = label is not None and CONFIG in label.to_set and label.to_set[CONFIG] != node.labels.get(CONFIG)
    every = tuple(pod.name for pod in view.pods if pod.daemon_set in sets and pod.node == node.name and not pod.leaves)
    names = every if follows else outdated
    if not names:
        return Decision((found,))
    step = Step(f"begin {', '.join(names)} anew", bad(found), Disruption.nothing, change=names)
    return Decision((found,), (step,))


def sets_that_stay(settings: Settings, view: View) -> tuple[str, ...]:
    """Return the names of the release's DaemonSets whose pods stay as they are until somebody ends them."""
    if settings.device_plugin.method not in BY_CHART:
        return ()
    staying = {each.name for each in view.daemon_sets if each.stays}
    return tuple(name for name in view.plugin_sets(settings.device_plugin.release) if name in staying)


def restarts_daemon(names: Sequence[str], view: View) -> bool:
    """Say whether one of the pods is an MPS daemon's."""
    return any(pod.name in names and (pod.daemon_set or "").endswith(MPS_DAEMON) for pod in view.pods)


def still_coming(settings: Settings, node: str, view: View, removed: Sequence[str]) -> str | None:
    """Return what is not there yet on a node whose pods were removed; None where all of them are back, and ready."""
    return next(_still_coming(settings, node, view, removed), None)


def _still_coming(settings: Settings, node: str, view: View, removed: Sequence[str]) -> Iterator[str]:
    plugin, shares = settings.device_plugin, settings.sharing.strategy == "mps"
    labels = view.nodes[node].labels if node in view.nodes else {}
    if plugin.gfd and plugin.config_name is None and not shares and labels.get(MPS_CAPABLE) == "true":
        # While it stands the release takes the node for one with a daemon, and goes on as long as one is left.
        yield f"GPU feature discovery has not taken {MPS_CAPABLE} off the node"
    for pod in view.pods:
        if pod.name in removed:
            yield f"{pod.name} has not ended"
    for name in sets_that_stay(settings, view):
        # A node that shares its GPUs otherwise has no daemon; where the others are, the labels of the node say.
        if name.endswith(FEATURE_DISCOVERY) or (name.endswith(MPS_DAEMON) and not shares):
            continue
        found = view.pod(name, node)
        if found is None or found.name in removed:
            yield f"{name} has no pod on the node"
        elif not found.ready:
            yield f"{found.name} is {found.phase}, not ready{f': {found.waits}' if found.waits else ''}"
