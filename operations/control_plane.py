"""Where helm and kubectl run: on this machine, or on a control-plane host of the inventory, whichever host asks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyinfra import host
from pyinfra.api import Host
from pyinfra.api.exceptions import NoHostError

from gpunode.base.reading import Unknown
from gpunode.kubernetes.device_plugin.cluster import Cluster, nodes_or_unknown
from gpunode.kubernetes.helm.session import Run
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.run_on import here, over_ssh
from gpunode.operations.shared_once import asked_once
from gpunode.settings.kubernetes import LOCAL, KubernetesSettings
from gpunode.settings.repositories import ProxySettings


def cluster_nodes(kubernetes: KubernetesSettings, proxy: ProxySettings) -> Mapping[str, ClusterNode] | Unknown:
    """Return name -> node of the whole cluster, asked once in a phase of a run, however many hosts want to know."""
    cluster = Cluster(kubernetes, proxy, runner(kubernetes))
    return asked_once("what the nodes' labels say", partial(nodes_or_unknown, cluster))


def runner(kubernetes: KubernetesSettings) -> Run:
    """Return what runs a command for the cluster, where `kubernetes.run_on` says."""
    if kubernetes.run_on == LOCAL:
        return here
    try:
        actual: Host | None = host.state.inventory.get_host(kubernetes.run_on)
    except NoHostError:
        actual = None
    return lambda command: over_ssh(kubernetes.run_on, actual, command)
