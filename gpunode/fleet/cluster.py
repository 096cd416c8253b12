"""What whoever reads an inventory's nodes, and changes none, asks of their cluster: where `kubernetes.run_on` says.

Operations ask by operations/control_plane.py, within their run; this drives pyinfra as gpunode.fleet.nodes does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from gpunode.kubernetes.foreign_cordon import asks as asks_for_cordon
from gpunode.kubernetes.foreign_cordon import left_alone
from gpunode.kubernetes.helm.session import Run
from gpunode.kubernetes.mig_label import asks, by_label
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


def with_cluster_nodes(inventory_path: Path, answers: tuple[Answer[T], ...]) -> tuple[Answer[T], ...]:
    """Return the answers with what the cluster's nodes say beforehand; it is asked once, where any host asks.

    Settings hold what the labels say. A host whose label cannot be had, or whose node is left to whoever cordoned it,
    has a `refusal`; where the cluster does not answer, its reading is Unknown.
    """
    asking = [each.settings for each in answers if asks(each.settings) or asks_for_cordon(each.settings)]
    if not asking:
        return answers
    kubernetes = asking[0].kubernetes
    with reached(inventory_path, kubernetes) as run:
        nodes = nodes_or_unknown(Cluster(kubernetes, asking[0].proxy, run))
    return tuple(_with_node(answer, nodes) for answer in answers)


def _with_node(answer: Answer[T], nodes: Mapping[str, ClusterNode] | Unknown) -> Answer[T]:
    for of_node in (left_alone, by_label):
        found = of_node(answer.name, answer.settings, nodes)
        if isinstance(found, Refusal):
            return replace(answer, refusal=found)
        if isinstance(found, Settings):
            answer = replace(answer, settings=found)
        elif found is not None and answer.reading is not None:
            answer = replace(answer, reading=found, reason=found.reason)
    return answer
