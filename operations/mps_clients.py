"""The plugin's MPS daemons about to restart: their clients are left alone, or their nodes drained before it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gevent.lock import BoundedSemaphore  # type: ignore[import-untyped]
from pyinfra import host

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError, Unknown
from gpunode.base.run_context import WAVE, Slot
from gpunode.kubernetes.components import Whole
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_restart import NONE, Bounds, decide_restart, waits
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.drain.commands import drain_of
from gpunode.kubernetes.mps_restarts import Restarts
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.operations.cluster_labels import is_taking_part, relabelled
from gpunode.operations.drain import drain_before, held_empty
from gpunode.operations.failure import OperationRefused
from gpunode.operations.phase import is_executing
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART, node_name

_RELEASE = ""
# What waits in the run, of the release and of nodes by name, for the verdict.
_waiting: Slot[dict[str, Decision[str]]] = Slot(dict)
# What a verdict without the changes before it finds that would restart them.
_would: Slot[Restarts | None] = Slot(lambda: None)
_asking = BoundedSemaphore(1)


def restart_of(
    cluster: Cluster,
    restarting: Collection[str],
    nodes: Mapping[str, ClusterNode],
    everyone: Mapping[str, Settings],
    what: str,
) -> Decision[str]:
    """Return what comes before the MPS daemons of these nodes restart; raise OperationRefused where nobody can say.

    + restarting: names in the cluster; of none of them, nothing is asked
    + nodes: the cluster's, as they were read last
    + everyone: host -> settings of the whole inventory
    + what: what restarts them, as `release gpu/nvdp`
    """
    if not restarting:
        return NONE
    try:
        every = cluster.clients(restarting)
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{what}: {error}\nnothing was changed in the cluster") from None
    wave = os.environ.get(WAVE, "")
    settings = {node_name(name, each): each for name, each in everyone.items()}
    held = held_empty({name for name, node in nodes.items() if node.is_held_back}, in_wave=bool(wave))
    bounds = Bounds(settings, relabelled(everyone), held, int(wave) if wave.isdecimal() else 0)
    return decide_restart({node: pods for node, pods in every.items() if node in restarting}, bounds)


def may_restart(restart: Decision[str], what: str, node: str | None = None) -> bool:
    """Say whether what restarts MPS daemons is done now; tell, and note for the verdict, that it waits.

    Raise OperationRefused where another run is needed for it: nothing has been changed then.

    + node: whose labels wait; None for the release
    """
    if restart.refusal is not None:
        raise OperationRefused(f"{what}: {restart.refusal}\nnothing was changed in the cluster")
    reason = waits(restart)
    if reason is None:
        return True
    if is_executing():
        _waiting.of(host.state)[_RELEASE if node is None else node] = restart
    host.noop(f"restart pending: {reason}")
    host.log(f"restart pending: {what} is to change, which restarts MPS daemons; {reason}")
    return False


def release_waits() -> Decision[str]:
    """Return what this run's change of the release waits for; no step where it does not wait."""
    return _waiting.of(host.state).get(_RELEASE, NONE)


def label_waits(node: str) -> Decision[str]:
    """Return what this run's change of a node's labels waits for; no step where it does not wait."""
    return _waiting.of(host.state).get(node, NONE)


def what_waits(
    settings: Settings, state: str | Unknown | None, cluster: Cluster, view: View, everyone: Mapping[str, Settings]
) -> tuple[Decision[str], Decision[str]]:
    """Return what the labels of the host's node wait for, and what the release does.

    As this run left them; where it looks at the cluster alone, as drift has it, which asks helm and the cluster once.

    + state: as `desired_labels` has it; everyone: host -> settings of the whole inventory
    """
    if is_taking_part() or not everyone:
        return label_waits(node_name(host.name, settings)), release_waits()
    with _asking:
        restarts = _would.of(host.state)
        if restarts is None:
            nodes = frozenset(node_name(name, each) for name, each in everyone.items() if each.kubernetes.enabled)
            restarts = Restarts(Whole(everyone, cluster, view, nodes))
            _would.set(host.state, restarts)
        release = restarts.of_release if settings.device_plugin.method in BY_CHART else NONE
        return restarts.of_node(host.name, settings, state), release


def drained(
    restart: Decision[str], everyone: Mapping[str, Settings], what: str, reason: str | None = None
) -> Iterator[Any]:
    """Yield what drains the nodes whose MPS daemon restarts under clients, in the order of their names.

    + everyone: host -> settings of the whole inventory; what: as for `restart_of`
    + reason: for what, as the annotation has it; None: for the restart
    """
    hosts = {node_name(name, settings): name for name, settings in everyone.items()}
    for step in restart.steps:
        host.log(f"{what}: {step.action}")
        if (node := step.change) is not None:
            drain = drain_of(hosts[node], everyone[hosts[node]])
            yield from drain_before(drain, reason or f"the MPS daemon of {node} is to restart")
