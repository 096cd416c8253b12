"""What whoever reads an inventory's nodes, and changes none, asks of their cluster: where `kubernetes.run_on` says.

Operations ask by operations/control_plane.py, within their run; this drives pyinfra as gpunode.fleet.nodes does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gpunode.base.findings import Finding
from gpunode.base.folding import in_one_line
from gpunode.base.reading import ParseError, Reading, Unknown
from gpunode.base.verdicts import Refusal
from gpunode.fleet.inventory import load_inventory
from gpunode.fleet.nodes import Answer, connected
from gpunode.kubernetes.device_plugin.cluster import Cluster, nodes_or_unknown
from gpunode.kubernetes.drain.commands import Drain, drain_of
from gpunode.kubernetes.helm.session import Run
from gpunode.kubernetes.mig_label import by_label, left_alone
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.cordon import Cordon, judged, parse_cordons, unknown
from gpunode.kubernetes.run_on import here, over_ssh
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name
from gpunode.settings.kubernetes import LOCAL, KubernetesSettings

T = TypeVar("T", bound=Reading)


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
    found = _asked(inventory, next(iter(drains.values())))
    if isinstance(found, str):
        return {host: unknown(found) for host in drains}
    cordons = {host: found.get(node_name(host, hosts[host])) for host in drains}
    return {host: judged(cordon) for host, cordon in cordons.items() if cordon is not None}


def _asked(inventory: Path, drain: Drain) -> Mapping[str, Cordon] | str:
    """Return what the cluster says, or why it does not."""
    with reached(inventory, drain.commands.kubernetes) as run:
        output = run(drain.commands.every_node())
    if output.status != 0:
        return f"kubectl: {in_one_line(output.err)}"
    try:
        return parse_cordons(output.out)
    except ParseError as error:
        return str(error)


def cluster_nodes(inventory: Path, settings: Iterable[Settings]) -> Mapping[str, ClusterNode] | Unknown | None:
    """Return the nodes of the hosts' cluster; Unknown says why it does not answer. None: no host is in a cluster."""
    first = next((each for each in settings if each.kubernetes.enabled), None)
    if first is None:
        return None
    with reached(inventory, first.kubernetes) as run:
        return nodes_or_unknown(Cluster(first.kubernetes, first.proxy, run))


def with_cluster_nodes(answers: Iterable[Answer[T]], nodes: Mapping[str, ClusterNode] | Unknown) -> list[Answer[T]]:
    """Return the answers with what the cluster's nodes say beforehand; nodes: Unknown where it does not answer.

    Settings hold what the labels say. A host whose label is not possible, or whose node is left as it was cordoned, has
    a `refusal`.
    """
    return [_with_node(answer, nodes) for answer in answers]


def _with_node(answer: Answer[T], nodes: Mapping[str, ClusterNode] | Unknown) -> Answer[T]:
    if isinstance(nodes, Unknown) and answer.settings.kubernetes.enabled:
        answer = replace(answer, no_cluster=True)
    for of_node in (left_alone, by_label):
        found = of_node(answer.name, answer.settings, nodes)
        if isinstance(found, Refusal):
            return replace(answer, refusal=found)
        if isinstance(found, Settings):
            answer = replace(answer, settings=found)
    return answer
