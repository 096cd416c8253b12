"""What is asked of the nodes' cluster where none is changed, and whether it still is what the settings promise.

Operations ask by operations/control_plane.py, within their run; this drives pyinfra as gpunode.fleet.nodes does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TypeVar

from gpunode.base.comparison import by_scope
from gpunode.base.decision import marked
from gpunode.base.findings import Finding, NodeReport
from gpunode.base.folding import in_one_line
from gpunode.base.messages import Scope
from gpunode.base.probe import Probe
from gpunode.base.reading import ParseError, Unknown
from gpunode.base.verdicts import Refusal
from gpunode.facts.cluster import Scheduler
from gpunode.fleet.inventory import load_inventory
from gpunode.fleet.nodes import Answer, connected, read
from gpunode.kubernetes.components import Whole, decide_alone, decide_exporter_alone, decisions, unknown, unreached
from gpunode.kubernetes.dcgm_exporter import SECOND_EXPORTER, exporter_namespace, nodes_with_exporter
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError, nodes_or_unknown
from gpunode.kubernetes.device_plugin.decide_restart import NONE
from gpunode.kubernetes.device_plugin.methods import extender, leaving, members, nodes_by, schedulers
from gpunode.kubernetes.device_plugin.others import SECOND_PLUGIN
from gpunode.kubernetes.device_plugin.own_config import CONFIG_ENTRY, decide_own_config
from gpunode.kubernetes.device_plugin.promise import TAKEN, judge_taken, mig_state
from gpunode.kubernetes.device_plugin.verdict import judge_node
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.drain.commands import drain_of
from gpunode.kubernetes.gpushare.decide import SCHEDULER, DesiredScheduler, SchedulerState, decide
from gpunode.kubernetes.helm.session import Run
from gpunode.kubernetes.mig_label import by_label, left_alone
from gpunode.kubernetes.mps_restarts import Restarts
from gpunode.kubernetes.nodes import cordon
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, parse_nodes
from gpunode.kubernetes.run_on import here, over_ssh
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART, node_name
from gpunode.settings.kubernetes import LOCAL, KubernetesSettings

T = TypeVar("T")
ClusterNodes = Mapping[str, ClusterNode]


@contextmanager
def reached(inventory: Path, kubernetes: KubernetesSettings) -> Iterator[Run]:
    """Give what runs helm and kubectl on this machine, or on a host of the inventory that is connected to meanwhile."""
    if kubernetes.run_on == LOCAL:
        yield here
        return
    hosts = load_inventory(inventory)
    with connected(hosts, [kubernetes.run_on]):
        actual = hosts.get_host(kubernetes.run_on)
        yield lambda command: over_ssh(kubernetes.run_on, actual, command)


def held_back(inventory: Path, hosts: Mapping[str, Settings]) -> dict[str, Finding]:
    """Return a finding for each of the hosts that is a node of the cluster and is drained; ask nothing without one."""
    drains = {host: drain for host, settings in hosts.items() if (drain := drain_of(host, settings))}
    if not drains:
        return {}
    # One inventory has one cluster; what else would be refused.
    commands = next(iter(drains.values()))
    with reached(inventory, commands.kubernetes) as run:
        output = run(commands.every_node())
    try:
        if output.status != 0:
            raise ParseError(f"kubectl: {in_one_line(output.err)}")
        found = parse_nodes(output.out)
    except ParseError as error:
        return {host: cordon.unknown(str(error)) for host in drains}
    held = {host: found.get(node_name(host, hosts[host])) for host in drains}
    return {host: cordon.judged(each) for host, each in held.items() if each is not None}


def cluster_nodes(inventory: Path, settings: Iterable[Settings]) -> ClusterNodes | Unknown | None:
    """Return the nodes of the hosts' cluster; Unknown says why it does not answer. None: no host is in a cluster."""
    first = next((each for each in settings if each.kubernetes.enabled), None)
    if first is None:
        return None
    with reached(inventory, first.kubernetes) as run:
        return nodes_or_unknown(Cluster(first.kubernetes, first.proxy, run))


def with_cluster_nodes(answers: Iterable[Answer[Node]], nodes: ClusterNodes | Unknown) -> list[Answer[Node]]:
    """Return the answers with settings as the nodes' labels say; nodes: Unknown where the cluster does not answer.

    A host whose label is not possible, or whose node is left as it was cordoned, has a `refusal`.
    """
    return [_with_node(answer, nodes) for answer in answers]


def _with_node(answer: Answer[Node], nodes: ClusterNodes | Unknown) -> Answer[Node]:
    if isinstance(nodes, Unknown) and answer.settings.kubernetes.enabled:
        answer = replace(answer, no_cluster=True)
    for of_node in (left_alone, by_label):
        found = of_node(answer.name, answer.settings, nodes)
        if isinstance(found, Refusal):
            return replace(answer, refusal=found)
        if isinstance(found, Settings):
            answer = replace(answer, settings=found)
    return answer


def findings(
    inventory: Path,
    hosts: Mapping[str, Settings],
    nodes: Mapping[str, Node | None],
    known: ClusterNodes | Unknown | None = None,
) -> tuple[dict[str, list[Finding]], NodeReport | None]:
    """Return host -> what the cluster says of it, and the cluster's own report; None where no node of it is judged.

    + hosts: settings of the whole inventory, which say what the release is to be
    + nodes: the hosts that are judged, as they were read, None where they could not be
    + known: the cluster's nodes; Unknown where it does not answer, None where they are to be read here
    """
    found: dict[str, list[Finding]] = {}
    read_nodes = {host: node for host, node in nodes.items() if node is not None}
    for name, item in _schedulers(inventory, hosts, read_nodes):
        found.setdefault(name, []).append(item)
    of_cluster = {host: each for host, each in hosts.items() if each.kubernetes.enabled and host in nodes}
    if not of_cluster:
        return found, None
    judged = {host: each for host, each in of_cluster.items() if host in read_nodes}
    of_first = next(iter({**members(hosts), **of_cluster}.values()))
    name = of_first.kubernetes.cluster_name
    if isinstance(known, Unknown):
        return found, NodeReport(name, (unreached(known.reason),), scope=Scope.CLUSTER)
    with reached(inventory, of_first.kubernetes) as run:
        cluster = Cluster(of_first.kubernetes, of_first.proxy, run, known)
        restarts = restarts_in(cluster, of_first.device_plugin.namespace, hosts, judged)
        if isinstance(restarts, str):
            return found, NodeReport(name, (unreached(restarts),), scope=Scope.CLUSTER)
        view = restarts.whole.view
        for host, settings in judged.items():
            node, release = read_nodes[host], restarts.of_release if settings.device_plugin.method in BY_CHART else NONE
            state = mig_state(settings.mig, node.pci.gpus, node.mig)
            restart = restarts.of_node(host, settings, state)
            of_node = (state, node.mig, view, node.gpus, node.mig_boot)
            on_node = judge_node(settings, node_name(host, settings), *of_node, restart, node.plugin_mps, release)
            found.setdefault(host, []).extend(on_node)
        of_all = alone(restarts.whole, judged), exporters(cluster, view, judged)
        for host, item in chain(*of_all, _taken(cluster, judged, view.nodes), entries(cluster, judged)):
            found[host].append(item)
        by_nodes: dict[str, Finding] = {}
        for host, items in found.items():
            parts = by_scope(items)
            found[host] = list(parts[Scope.NODE])
            by_nodes |= {item.what: item for item in parts[Scope.CLUSTER]}
        own = tuple(item for each in decisions(restarts.whole, restarts.deciding()) for item in each.findings)
    return found, NodeReport(name, _once(own, by_nodes), scope=Scope.CLUSTER)


def restarts_in(
    cluster: Cluster, namespace: str, hosts: Mapping[str, Settings], judged: Mapping[str, Settings]
) -> Restarts | str:
    """Return what a run of the judged hosts restarts in the cluster; why the cluster does not answer."""
    shared = bool(nodes_by("gpushare", hosts))
    view = _answer(lambda: cluster.view(namespace, shared, exporter_namespace(hosts)))
    if isinstance(view, str):
        return view
    # As a run of these hosts would label them.
    relabelled = frozenset(node_name(host, settings) for host, settings in judged.items())
    return Restarts(Whole(hosts, cluster, view, relabelled))


def _once(own: tuple[Finding, ...], by_nodes: Mapping[str, Finding]) -> tuple[Finding, ...]:
    """Return the cluster's findings, each once; what a node shows to be wrong is not ok."""
    known = {item.what for item in own if item.is_negative}
    more = {what: item for what, item in by_nodes.items() if what not in known}
    return (*(item for item in own if item.what not in more), *more.values())


def against(inventory: Path, hosts: Mapping[str, Settings], names: Sequence[str]) -> dict[str, str]:
    """Return node -> why the cluster gives it no work, for the gate of a rollout; others' cordons are no reason.

    Whether it offers what it promises is among the findings. Nothing is asked where no host is in a cluster.
    """
    nodes = {name: hosts[name] for name in names if name in hosts and hosts[name].kubernetes.enabled}
    first = next(iter(nodes.values()), None)
    if first is None:
        return {}
    with reached(inventory, first.kubernetes) as run:
        found = _answer(Cluster(first.kubernetes, first.proxy, run).nodes)
    if isinstance(found, str):
        return dict.fromkeys(nodes, " ".join(found.split()))
    reasons = {name: _reason(found.get(node_name(name, settings))) for name, settings in nodes.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _reason(node: ClusterNode | None) -> str | None:
    if node is None:
        return "it has no such node"
    if not node.ready:
        return "the node is not Ready"
    return "the node is still cordoned, by gpunode" if node.is_held_back else None


def alone(whole: Whole, judged: Mapping[str, Settings]) -> Iterator[tuple[str, Finding]]:
    """Yield whether nodes have no device plugin but their own; the cluster is asked where one is to have any."""
    nodes = whole.view.nodes
    with_plugin = {host: each for host, each in judged.items() if each.device_plugin.method != "none"}
    with_plugin = {host: each for host, each in with_plugin.items() if node_name(host, each) in nodes}
    plugins = _answer(whole.cluster.plugins) if with_plugin else ()
    gone = leaving(whole.hosts, nodes, frozenset(whole.relabelled))
    for host, settings in with_plugin.items():
        if isinstance(plugins, str):
            yield host, unknown(SECOND_PLUGIN, words=plugins)
            continue
        for item in marked(decide_alone(settings, nodes[node_name(host, settings)], plugins, gone)).findings:
            yield host, item


def exporters(cluster: Cluster, view: View, judged: Mapping[str, Settings]) -> Iterator[tuple[str, Finding]]:
    """Yield whether nodes that are to have DCGM's exporter have another one, too; nothing is asked where none is."""
    nodes = nodes_with_exporter(judged)
    exporters = _answer(cluster.exporters) if nodes else ()
    for host, settings in nodes.items():
        if isinstance(exporters, str):
            yield host, unknown(SECOND_EXPORTER, words=exporters)
        elif (node := view.nodes.get(node_name(host, settings))) is not None:
            for item in marked(decide_exporter_alone(settings, node, exporters)).findings:
                yield host, item


def entries(cluster: Cluster, judged: Mapping[str, Settings]) -> Iterator[tuple[str, Finding]]:
    """Yield whether the ConfigMap of the user's own has the nodes' entries; it is read once."""
    named = {host: each for host, each in judged.items() if each.device_plugin.config_name is not None}
    named = {host: each for host, each in named.items() if each.device_plugin.method in BY_CHART}
    first = next((each.device_plugin for each in named.values()), None)
    if first is None:
        return
    entries = _answer(lambda: cluster.config_map(first.namespace, first.config_name or ""))
    for host, settings in named.items():
        if isinstance(entries, str):
            yield host, unknown(CONFIG_ENTRY, f"{first.namespace}/{first.config_name}", words=entries)
            continue
        for item in marked(decide_own_config(settings, entries)).findings:
            yield host, item


def _taken(
    cluster: Cluster, judged: Mapping[str, Settings], nodes: Mapping[str, ClusterNode]
) -> Iterator[tuple[str, Finding]]:
    """Yield how much is taken of what nodes with a plugin of gpunode's offer: for people, no setting asks for it."""
    with_plugin = (host for host, each in judged.items() if each.device_plugin.method != "none")
    offering = {host: node for host in with_plugin if (node := nodes.get(node_name(host, judged[host])))}
    if not offering:
        return
    taken = _answer(cluster.taken)
    for host, node in offering.items():
        if isinstance(taken, str):
            yield host, unknown(TAKEN, "the node's GPUs", words=taken, desired=None)
        else:
            yield from ((host, item) for item in judge_taken(node, taken))


def _answer(question: Callable[[], T]) -> T | str:
    """Return what the cluster answers; why it does not."""
    try:
        return question()
    except (ClusterError, ParseError) as error:
        return str(error)


def _schedulers(
    inventory: Path, hosts: Mapping[str, Settings], nodes: Mapping[str, Node]
) -> Iterator[tuple[str, Finding]]:
    """Yield what is found of the schedulers on those hosts that are judged, as a run of them would change them."""
    names = [name for name in schedulers(hosts) if name in nodes]
    first = next((each for each in hosts.values() if each.kubernetes.enabled), None)
    if not names or first is None:
        return
    manifest = first.gpushare.manifest
    desired = DesiredScheduler(extender(hosts), manifest, first.kubernetes.version)

    class ByManifest(Scheduler):
        """The scheduler, asked by the manifest that the settings name."""

        def command(self) -> Probe:  # type: ignore[override]
            return super().command(manifest)

    for answer in read(inventory, ByManifest, only=names):
        if not isinstance(answer.reading, SchedulerState):
            yield answer.name, unknown(SCHEDULER, words=str(answer.reason))
            continue
        for item in marked(decide(desired, answer.reading)).findings:
            yield answer.name, item
