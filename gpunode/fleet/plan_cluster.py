"""What the plan reports of the cluster: one row for all that it has once, and its part of each node's plan.

The decisions are drift's (cluster.py), made from one reading of the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from gpunode.base.decision import Decision, marked
from gpunode.base.disruption import Disruption
from gpunode.base.findings import CLUSTER, Finding, FindingClass
from gpunode.base.reading import Unknown
from gpunode.components.mig import decide as mig
from gpunode.fleet.cluster import alone, entries, exporters, reached, restarts_in
from gpunode.fleet.inventory import host_settings
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes import components
from gpunode.kubernetes.components import unknown, unreached
from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.device_plugin.decide_pods import decide_current, decide_outdated, decide_registered
from gpunode.kubernetes.device_plugin.decide_restart import with_restart
from gpunode.kubernetes.device_plugin.methods import members
from gpunode.kubernetes.device_plugin.promise import mig_state
from gpunode.kubernetes.device_plugin.verdict import daemon_sets_of, resources_of
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.mig_label import asks
from gpunode.kubernetes.mps_restarts import Restarts, named
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.component import COMPONENT
from gpunode.kubernetes.nodes.labels import LabelChange
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.machine import resolved
from gpunode.node.plan import STOP, Plan, PlannedStep, step_of
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


def with_cluster(
    inventory: Path,
    answers: Collection[Answer[Node]],
    plans: Mapping[str, Plan | Finding],
    known: Mapping[str, ClusterNode] | Unknown,
) -> dict[str, Plan | Finding]:
    """Return the plans with what a run of these hosts changes in the cluster: its own, under CLUSTER, and each node's.

    + answers: the hosts that were read; plans: theirs, by name
    + known: the cluster's nodes; Unknown where it does not answer
    """
    readings = {each.name: each.reading for each in answers if isinstance(each.reading, Node)}
    images = [host for host, node in readings.items() if node.is_image]
    of_cluster = {
        each.name: each.settings for each in answers if each.settings.kubernetes.enabled and each.name not in images
    }
    runs = [host for host, found in plans.items() if isinstance(found, Plan) and not found.refusals]
    judged = {host: settings for host, settings in of_cluster.items() if host in runs}
    if not (of_cluster if isinstance(known, Unknown) else judged):
        return dict(plans)
    hosts = host_settings(inventory) | {each.name: each.settings for each in answers}
    first = next(iter({**members(hosts), **of_cluster}.values()))
    name = first.kubernetes.cluster_name
    if isinstance(known, Unknown):
        return {**plans, CLUSTER: _unreached(name, known.reason)}
    with reached(inventory, first.kubernetes) as run:
        cluster = Cluster(first.kubernetes, first.proxy, run, known)
        restarts = restarts_in(cluster, first.device_plugin.namespace, hosts, judged)
        if isinstance(restarts, str):
            return {**plans, CLUSTER: _unreached(name, restarts)}
        made = {host: _with(plans[host], host, each, readings[host], restarts) for host, each in judged.items()}
        of_view = exporters(cluster, restarts.whole.view, judged)
        by_others = chain(alone(restarts.whole, judged), of_view, entries(cluster, judged))
        for host, item in by_others:
            if item.finding_class is not FindingClass.OK:
                made[host] = _and(made[host], step_of(item))
        decided = components.decisions(restarts.whole, restarts.deciding())
        steps = tuple(step for each in decided for step in _rows(each))
        only_then = ("what helm and the cluster answer",) if any(not step.pending for step in steps) else ()
        return {**plans, **made, CLUSTER: Plan((), (), steps, known_after_run=only_then, cluster=name)}


def not_asked(plans: Mapping[str, Plan | Finding], hosts: Mapping[str, Settings]) -> dict[str, Plan | Finding]:
    """Return the plans by recorded facts, with what is not known because no cluster was asked."""
    first = next((each for host, each in hosts.items() if each.kubernetes.enabled and host in plans), None)
    if first is None:
        return dict(plans)
    cause, remedy = "recorded facts say nothing of the cluster", "ask it: `gpunode plan INVENTORY`"
    label = step_of(mig.CONFIGURATION.not_known("by the node's label", cause, remedy))
    found = {host: _and(each, label) if asks(hosts[host]) else each for host, each in plans.items()}
    step = step_of(unknown(components.CLUSTER, words=f"{cause}\n{remedy}"))
    return {**found, CLUSTER: Plan((), (), (step,), cluster=first.kubernetes.cluster_name)}


def _and(found: Plan | Finding, *steps: PlannedStep) -> Plan | Finding:
    return found if isinstance(found, Finding) else replace(found, steps=(*found.steps, *steps))


def _unreached(name: str, words: str) -> Plan:
    return Plan((), (), (step_of(unreached(words)),), cluster=name)


def _rows(decision: Decision[Any], action: str | None = None) -> Iterator[PlannedStep]:
    """Yield the steps of a decision, and what keeps a run from others; action: None: as each step has it."""
    for step in decision.steps:
        first = next(iter(step.settles), None)
        yield PlannedStep(
            COMPONENT,
            action or step.action,
            *((first.actual, first.desired) if first else (step.actual, step.desired)),
            step.disruption,
            step.waits is not None,
            step.packages,
            what=first.what if first else None,
            code=first.code if first else None,
            cause=step.waits,
        )
    settled = {item for step in decision.steps for item in step.settles}
    left = [item for item in decision.findings if item.finding_class is not FindingClass.OK and item not in settled]
    for item in left:
        yield replace(step_of(item), fails=True) if decision.refusal else step_of(item)
    if decision.refusal and not left:
        yield PlannedStep(COMPONENT, STOP, None, None, Disruption.nothing, True, cause=decision.refusal, fails=True)


def _with(found: Plan | Finding, host: str, settings: Settings, node: Node, restarts: Restarts) -> Plan | Finding:
    if isinstance(found, Finding):
        return found
    name = node_name(host, settings)
    # What the run divides is what the labels then report.
    comes = any(step.component == "mig" and not step.pending for step in found.steps)
    state = "success" if comes else mig_state(settings.mig, node.pci.gpus, node.mig)
    release, label = restarts.of_release, restarts.of_node(host, settings, state)
    # An MPS daemon restarts there, and its clients are not known.
    clients = dict.fromkeys(item for each in (release, label) for item in each.findings)
    not_known = [replace(item, disruption=Disruption.restart) for item in clients]
    labels = restarts.labels(host, settings, state)
    waits = next((step.waits for each in (release, label) for step in named(each, name) if step.waits), None)
    changes = _changes(settings, node, restarts.whole.view, name, labels, label, waits)
    stays = _stays(settings, node, name, restarts.whole.cluster) if comes else ()
    return _and(found, *stays, *_restarts(settings, name, release, label), *changes, *map(step_of, not_known))


def _stays(settings: Settings, node: Node, name: str, cluster: Cluster) -> Iterator[PlannedStep]:
    """Yield where a run stops because pods hold GPUs that MIG is to change, and do not leave the node for it."""
    for step in decisions(resolved(settings, node), node)["mig"].steps[:1]:
        containers = step.change.containers if step.change is not None and step.change.takes else ()
        if containers and (reason := cluster.why_pods_stay(name, containers, settings.kubernetes.drains)) is not None:
            yield PlannedStep("mig", STOP, None, None, Disruption.nothing, True, cause=reason, fails=True)


def _restarts(settings: Settings, name: str, release: Decision[str], label: Decision[str]) -> Iterator[PlannedStep]:
    """Yield the restart of the node's MPS daemon."""
    for step in (*named(release, name), *(() if label is release else named(label, name)))[:1]:
        pending = step.waits is not None
        action = step.action if step.waits is None else f"{step.action}; not now: {step.waits}"
        drains = settings.kubernetes.drains and not pending
        yield PlannedStep(COMPONENT, action, step.actual, step.desired, Disruption.restart, pending, (), drains)


def _changes(
    settings: Settings,
    node: Node,
    view: View,
    name: str,
    labels: Decision[LabelChange],
    restart: Decision[str],
    waits: str | None,
) -> Iterator[PlannedStep]:
    """Yield what a run changes of one node in the cluster, and what keeps it from that.

    + labels: what is to be done about the node's labels; restart: what comes before that
    + waits: why the node's MPS daemon does not restart now; pods that restart with it wait as well
    """
    change, action = next((step.change for step in labels.steps), None), None
    if change is not None:
        said = (*map("=".join, change.to_set.items()), *(f"no {label}" for label in change.to_remove))
        action = f"label the node in the cluster: {', '.join(said) or 'which labels are of gpunode'}"
    # What is not known of MIG is a step of MIG.
    decided = marked(with_restart(labels, restart))
    yield from (step for step in _rows(decided, action) if not step.not_known)
    if (actual := view.nodes.get(name)) is None:
        return
    yield from _rows(marked(resources_of(settings, actual)), "count the node's extended resources in the cluster")
    if settings.device_plugin.method == "none":
        return
    sets = daemon_sets_of(settings, view)
    for pods in (
        decide_outdated(settings, actual, view, change),
        decide_current(settings, name, sets, view, node.mig_boot),
        decide_registered(settings, actual, sets, view, node.mig, node.gpus),
    ):
        steps = tuple(replace(step, waits=step.waits or waits) for step in pods.steps)
        yield from _rows(replace(pods, steps=steps, findings=()))
