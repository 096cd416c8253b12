"""What the plan reports of the cluster: changes that restart the device plugin's MPS daemons under their clients.

What else a run changes in the cluster disturbs no workload, and drift reports it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from gpunode.base.decision import Decision
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.reading import ParseError
from gpunode.base.verdicts import RefusalMessage
from gpunode.fleet.cluster import reached
from gpunode.fleet.inventory import host_settings
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes.components import CLUSTER, Whole, unknown
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_restart import WAYS_OUT, waits, with_daemon
from gpunode.kubernetes.device_plugin.promise import mig_state
from gpunode.kubernetes.mps_restarts import Restarts, named
from gpunode.kubernetes.nodes.component import COMPONENT
from gpunode.node import Node
from gpunode.node.plan import Plan, PlannedStep, step_of
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name

_SOURCE = "the cluster's answer"


def with_restarts(
    inventory: Path, answers: Collection[Answer[Node]], plans: Mapping[str, Plan | Finding]
) -> dict[str, Plan | Finding]:
    """Return the plans with what a run of these hosts disturbs by restarting MPS daemons of the plugin's.

    The cluster is not read where none of the hosts is in it, and only its nodes where none has such a daemon. What does
    not answer is a step of each plan that is not known.

    + answers: the hosts that were read; plans: theirs, by name
    """
    judged = {each.name: each.settings for each in answers if _is_in(each, plans)}
    if not judged:
        return dict(plans)
    hosts = host_settings(inventory) | {each.name: each.settings for each in answers}
    readings = {each.name: each.reading for each in answers if isinstance(each.reading, Node)}
    first = next(iter(judged.values()))
    with reached(inventory, first.kubernetes) as run:
        cluster = Cluster(first.kubernetes, first.proxy, run)
        try:
            nodes = cluster.nodes()
            if not with_daemon(nodes):
                return dict(plans)
            view = cluster.view(first.device_plugin.namespace)
        except (ClusterError, ParseError) as error:
            step = step_of(unknown(CLUSTER, words=str(error)))
            return {**plans, **{host: _and(plans[host], step) for host in judged}}
        relabelled = frozenset(node_name(host, settings) for host, settings in judged.items())
        restarts = Restarts(Whole(hosts, cluster, view, relabelled))
        return {
            **plans,
            **{host: _with(plans[host], host, each, readings[host], restarts) for host, each in judged.items()},
        }


def _is_in(answer: Answer[Node], plans: Mapping[str, Plan | Finding]) -> bool:
    found = plans.get(answer.name)
    return answer.settings.kubernetes.enabled and isinstance(found, Plan) and not found.refusals


def _and(found: Plan | Finding, *steps: PlannedStep) -> Plan | Finding:
    return found if isinstance(found, Finding) else replace(found, steps=(*found.steps, *steps))


CLIENTS_WOULD_END = RefusalMessage(
    "mps-clients-would-end",
    "MPS daemons of the device plugin would restart, which ends their clients.",
    component=COMPONENT,
    source=_SOURCE,
    remedy=WAYS_OUT,
    detail="Pods that share a GPU by MPS hang or fail where their daemon restarts.",
)


def _with(found: Plan | Finding, host: str, settings: Settings, node: Node, restarts: Restarts) -> Plan | Finding:
    if isinstance(found, Finding):
        return found
    name = node_name(host, settings)
    release, label = (
        restarts.of_release,
        restarts.of_node(host, settings, mig_state(settings.mig, node.pci.gpus, node.mig)),
    )
    # An MPS daemon restarts there, and its clients are not known.
    clients = dict.fromkeys(item for each in (release, label) for item in each.findings)
    not_known = [replace(item, disruption=Disruption.restart) for item in clients]
    not_known += [
        unknown(message, of, words=str(each))
        for (message, of), each in restarts.releases.items()
        if isinstance(each, Exception)
    ]
    reasons = dict.fromkeys(each.refusal for each in (release, label) if each.refusal is not None)
    refused = tuple(CLIENTS_WOULD_END(reason=reason) for reason in reasons)
    with_refusals = replace(found, refusals=(*found.refusals, *refused))
    return _and(with_refusals, *_steps(settings, name, release, label), *map(step_of, not_known))


def _steps(settings: Settings, name: str, release: Decision[str], label: Decision[str]) -> Iterator[PlannedStep]:
    """Yield the restart of the node's daemon, and what waits on this node for others'."""
    own = (*named(release, name), *(() if label is release else named(label, name)))
    for step in own[:1]:
        pending = step.waits is not None
        action = step.action if step.waits is None else f"{step.action}; not now: {step.waits}"
        yield PlannedStep(
            COMPONENT,
            action,
            step.actual,
            step.desired,
            Disruption.restart,
            pending,
            (),
            settings.kubernetes.drains and not pending,
        )
    reason = waits(label)
    if reason is not None and not own:
        action = f"label node {name} for another configuration; not now: {reason}"
        yield PlannedStep(COMPONENT, action, "as it is", "as the settings ask", Disruption.restart, True)
