"""What comes before the plugin's MPS daemons restart: nodes with clients are drained, or the change waits.

One decision for drift, the plan and the run: on a change of the release, which restarts the daemons of all nodes at
once, and on a change of a node's labels, which restarts the node's own.

A daemon ends its clients when it ends. The plugin restarts it with every other configuration of its node, and the chart
replaces its pods, on all nodes at once, with every other ConfigMap or version.
source: NVIDIA/k8s-device-plugin, cmd/mps-control-daemon/main.go (SIGHUP) and the chart's checksum/config
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gpunode.base.comparison import pending
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.kubernetes.device_plugin.view import MPS_DAEMON
from gpunode.kubernetes.helm.change import Act, ReleaseChange
from gpunode.kubernetes.helm.manifest import Identity
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, told
from gpunode.kubernetes.nodes.labels import CONFIG, MPS_CAPABLE, LabelChange
from gpunode.settings import Settings
from gpunode.settings.sharing import WHOLE_GPU

# With `sharing.rename`, too. MPS shares whole GPUs alone.
_SHARED = (WHOLE_GPU, f"{WHOLE_GPU}.shared")
_FINISHED = ("Succeeded", "Failed")


def parse_clients(text: str) -> dict[str, tuple[str, ...]]:
    """Parse a list of Pods: node -> those on it that have a GPU, or a part of one; raise ParseError.

    One that has ended has none any more. Whether one uses its GPU at this moment, the cluster does not know.
    """
    return told(text, "list of Pods", lambda found: _by_node(found["items"]))


def _by_node(items: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for item in items:
        spec, status = item["spec"], item.get("status") or {}
        containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        limits = [(each.get("resources") or {}).get("limits") or {} for each in containers]
        has_gpu = any(str(limit[name]) != "0" for limit in limits for name in _SHARED if name in limit)
        if has_gpu and spec.get("nodeName") and status.get("phase") not in _FINISHED:
            metadata = item["metadata"]
            found.setdefault(str(spec["nodeName"]), []).append(f"{metadata['namespace']}/{metadata['name']}")
    return {node: tuple(sorted(names)) for node, names in sorted(found.items())}


def with_daemon(nodes: Mapping[str, ClusterNode]) -> frozenset[str]:
    """Return the nodes on which the plugin's MPS daemon runs."""
    return frozenset(name for name, node in nodes.items() if node.labels.get(MPS_CAPABLE) == "true")


def label_restarts(change: LabelChange, node: ClusterNode) -> bool:
    """Say whether the MPS daemon of a node ends, or begins anew, by a change of the node's labels."""
    after = change.applied_to(node.labels)
    same = all(after.get(name) == node.labels.get(name) for name in (CONFIG, MPS_CAPABLE))
    return bool(with_daemon({node.name: node})) and not same


def release_restarts(change: ReleaseChange) -> bool:
    """Say whether every MPS daemon of the cluster ends, or begins anew, by what helm is told."""
    acts = [step.act for step in change.steps]
    # Nobody has looked at what these change; but a revision by which the daemons stay ends none, whatever is in it.
    if Act.UNINSTALL in acts or (Act.ROLLBACK in acts and not any(map(_is_daemon, change.stays_behind))):
        return True
    ids = [each.identity for each in change.differences]
    return Act.UPGRADE in acts and any(_is_daemon(each) and each not in change.stays for each in ids)


def release_outdates(change: ReleaseChange) -> bool:
    """Say whether every MPS daemon of the cluster is to begin anew after what helm is told, each by its node's turn."""
    acts = [step.act for step in change.steps]
    return Act.UPGRADE in acts and any(
        _is_daemon(each.identity) and each.identity in change.stays and each.path.startswith("spec.template")
        for each in change.differences
    )


def _is_daemon(identity: Identity) -> bool:
    return identity.kind == "DaemonSet" and identity.name.endswith(MPS_DAEMON)


Change = TypeVar("Change")
_SHOWN = 5
WAYS_OUT = (
    "End these pods, or run it for all of these nodes with disruption.allow = 'restart' and a disruption.max_parallel "
    "of as many"
)
# No daemon with clients restarts.
NONE: Decision[str] = Decision(())


@dataclass(frozen=True)
class Bounds:
    """Hold what bounds a restart.

    settings: node -> settings, of the whole inventory
    in_run: the nodes that the run brings about
    held: the nodes that gpunode holds empty already
    wave: how many nodes a wave of a rollout may hold empty; 0 outside of one
    """

    settings: Mapping[str, Settings]
    in_run: Collection[str]
    held: Collection[str] = ()
    wave: int = 0


def decide_restart(clients: Mapping[str, Sequence[str]], bounds: Bounds) -> Decision[str]:
    """Return what comes before MPS daemons restart: a step for each node with clients; its change is the node's name.

    They restart together: where one waits, all do. It is a refusal where a run of other hosts, or with more empty
    nodes, is needed, and pending where the settings forbid it.

    + clients: node -> its GPU pods, of the nodes whose daemon restarts
    """
    felt = {node: pods for node, pods in sorted(clients.items()) if pods}
    forbidden = [reason for node, pods in felt.items() if (reason := _forbidden(node, len(pods), bounds))]
    left_out = {node: pods for node, pods in felt.items() if node not in bounds.settings or node not in bounds.in_run}
    refused = [f"{node} is not in this run and has {_counted(len(pods))}" for node, pods in left_out.items()]
    refused += [] if forbidden or refused else _too_many(felt, bounds)
    waits = _few((*refused, *forbidden), "; ") or None
    steps = (
        Step(_action(node, pods), (), Disruption.restart, waits, node, _counted(len(pods)), "none")
        for node, pods in felt.items()
    )
    refusal = f"MPS daemons would restart, which ends their clients: {waits}. {WAYS_OUT}" if refused else None
    return Decision((), tuple(steps), refusal)


def decide_label(restarting: Decision[str], release: Decision[str], change: LabelChange) -> Decision[str]:
    """Return what comes before a change of a node's labels.

    A node is labelled for no configuration that the release has not got: where the release waits, its label does, too.

    + restarting: what comes before the node's own daemon restarts for the label; release: before the release changes
    """
    return release if waits(release) is not None and CONFIG in change.to_set else restarting


def waits(restart: Decision[str]) -> str | None:
    """Return why MPS daemons do not restart now; None where they do, or where none has to."""
    return next((step.waits for step in restart.steps if step.waits is not None), None)


def with_restart(decision: Decision[Change], restart: Decision[str]) -> Decision[Change]:
    """Return the decision on what restarts MPS daemons with what that disturbs, or as one that waits as they do."""
    if not restart.steps:
        return replace(decision, findings=(*decision.findings, *restart.findings))
    reason = waits(restart)
    told = {item: _felt(item, restart, reason) for step in decision.steps for item in step.settles}
    steps = tuple(
        replace(
            step,
            settles=tuple(told[item] for item in step.settles),
            disruption=max(step.disruption, Disruption.restart),
            waits=step.waits or reason,
        )
        for step in decision.steps
    )
    findings = tuple(told.get(item, item) for item in decision.findings)
    return Decision((*findings, *restart.findings), steps, decision.refusal or restart.refusal)


def followed_by(decision: Decision[Change], turns: Decision[str]) -> Decision[Change]:
    """Return the decision on a release that restarts nothing by itself, with what its nodes' turns disturb then."""
    if not turns.steps:
        return replace(decision, findings=(*decision.findings, *turns.findings))
    waiting = [step for step in turns.steps if step.waits is not None]
    few = _few([f"{step.action}{f' (not now: {step.waits})' if step.waits else ''}" for step in turns.steps], "; ")
    felt = Disruption.nothing if len(waiting) == len(turns.steps) else Disruption.restart

    def told(item: Finding) -> Finding:
        if not bad(item):
            return item
        return replace(item, cause="; ".join(filter(None, (item.cause, f"then node by node: {few}"))), disruption=felt)

    steps = tuple(
        replace(step, settles=tuple(map(told, step.settles)), disruption=max(step.disruption, felt))
        for step in decision.steps
    )
    return Decision((*map(told, decision.findings), *turns.findings), steps, decision.refusal)


def behind_restart(item: Finding, reason: str) -> Finding:
    """Return a difference that follows from a change that waits as pending with it."""
    return replace(pending(item, reason), by_person=False)


def _felt(item: Finding, restart: Decision[str], reason: str | None) -> Finding:
    if not bad(item):
        return item
    told = "; ".join(filter(None, (item.cause, _few([step.action for step in restart.steps], "; "))))
    if reason is None:
        return replace(item, cause=told, disruption=Disruption.restart)
    return replace(
        item,
        finding_class=FindingClass.RESTART_PENDING,
        cause=f"{told}; not now: {reason}",
        remedy=WAYS_OUT,
        disruption=Disruption.restart,
        by_person=False,
    )


def _forbidden(node: str, pods: int, bounds: Bounds) -> str | None:
    settings = bounds.settings.get(node)
    if settings is None or node not in bounds.in_run:
        return None
    if is_forbidden(Disruption.restart, Disruption[settings.disruption.allow], pods):
        return f"{node} has {_counted(pods)} and disruption.allow is {settings.disruption.allow}"
    return None


def _too_many(felt: Collection[str], bounds: Bounds) -> Iterator[str]:
    """Yield why the nodes cannot be drained: they would be empty at the same time, until the verdict."""
    drained = [node for node in felt if bounds.settings[node].kubernetes.drains]
    to_come = set(drained) - set(bounds.held)
    most = min((bounds.settings[node].disruption.max_parallel for node in to_come), default=0)
    empty = sorted({*drained, *bounds.held})
    if to_come and len(empty) > max(most, bounds.wave):
        beside = sorted(set(bounds.held) - set(drained))
        held = f"gpunode holds {_few(beside, ', ')} so already (give them back, or run again when they are well)"
        together = (*((held,) if beside else ()), *(("these daemons restart at once",) if len(drained) > 1 else ()))
        yield (
            f"{_few(empty, ', ')} would be empty at the same time, for {' and '.join(together)}, and "
            f"disruption.max_parallel is {most}"
        )


def _action(node: str, pods: Sequence[str]) -> str:
    return f"restart the MPS daemon of {node}, which ends {_few(pods, ', ')}"


def _few(words: Sequence[str], between: str) -> str:
    """Return them in a line that is not longer for a thousand than for a few."""
    more = () if len(words) <= _SHOWN else (f"{len(words) - _SHOWN} more",)
    return between.join((*words[:_SHOWN], *more))


def _counted(pods: int) -> str:
    return f"{pods} GPU pod{'' if pods == 1 else 's'}"
