"""How a run asks and changes a cluster, and where helm and kubectl run for it: here, or on a control-plane host.

Where the cluster does not answer, or a change fails, the host fails that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, State
from pyinfra.api.exceptions import NoHostError

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError, Unknown
from gpunode.facts.runtimes import Containerd, Crio, Docker
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError, nodes_or_unknown
from gpunode.kubernetes.helm.session import Run
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.run_on import here, over_ssh
from gpunode.operations.failure import OperationRefused, WaitsForCluster, failed, read_fact
from gpunode.operations.phase import is_image
from gpunode.operations.shared_once import asked_once
from gpunode.settings import Settings
from gpunode.settings.kubernetes import LOCAL, KubernetesSettings
from gpunode.settings.repositories import ProxySettings

T = TypeVar("T")


def cluster_nodes(kubernetes: KubernetesSettings, proxy: ProxySettings) -> Mapping[str, ClusterNode] | Unknown:
    """Return name -> node of the whole cluster, asked once in a run, however many hosts want to know."""
    cluster = Cluster(kubernetes, proxy, runner(kubernetes))
    return asked_once("the cluster's nodes as the run began", partial(nodes_or_unknown, cluster), again=False)


def unanswered(settings: Settings | None) -> str | None:
    """Return why the cluster of a node with these settings does not answer; None where it does, or there is none."""
    if settings is None or not settings.kubernetes.enabled or is_image():
        return None
    nodes = cluster_nodes(settings.kubernetes, settings.proxy)
    return nodes.reason if isinstance(nodes, Unknown) else None


def containers() -> int:
    """Return how many containers run on the host, by whichever runtime; raise OperationRefused."""
    containerd = read_fact(Containerd, "containerd's state")
    docker = read_fact(Docker, "docker's state")
    crio = read_fact(Crio, "CRI-O's state")
    return int(containerd.shims + docker.containers + crio.containers)


def wait_without_cluster(settings: Settings | None, what: str) -> None:
    """Raise WaitsForCluster where containers run on a node whose cluster does not answer; what: needs the cluster."""
    if (reason := unanswered(settings)) is not None and containers():
        raise WaitsForCluster(f"{what} waits for the cluster, which does not answer: {reason.partition(chr(10))[0]}")


def cluster_for(settings: Settings) -> Cluster:
    """Return the cluster of a node with these settings."""
    return Cluster(settings.kubernetes, settings.proxy, runner(settings.kubernetes))


def runner(kubernetes: KubernetesSettings) -> Run:
    """Return what runs a command for the cluster, where `kubernetes.run_on` says."""
    if kubernetes.run_on == LOCAL:
        return here
    try:
        actual: Host | None = host.state.inventory.get_host(kubernetes.run_on)
    except NoHostError:
        actual = None
    return lambda command: over_ssh(kubernetes.run_on, actual, command)


def answered(what: str, ask: Callable[[], T]) -> T:
    """Return what the cluster answers; raise OperationRefused, by what was asked, where it does not."""
    try:
        return ask()
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{what}: {error}") from None


def asked(what: str, ask: Callable[[], T]) -> T:
    """Return what the cluster answers to a question that a phase of the run asks once; as `answered`."""
    return answered(what, partial(asked_once, what, ask))


def decided(decide: Callable[[], Decision[T]]) -> Decision[T]:
    """Return what is to be done in the cluster; raise OperationRefused where nobody can say, or nothing may be done."""
    try:
        decision = decide()
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    if decision.refusal is not None:
        raise OperationRefused(f"{decision.refusal}\nnothing was changed in the cluster")
    return decision


def told(change: Callable[[], Any]) -> FunctionCommand:
    """Return the command that changes something in the cluster; where that fails, cause and remedy are told."""
    return FunctionCommand(_tell, [change], {})


def _tell(state: State, host: Host, change: Callable[[], Any]) -> bool:
    try:
        change()
    except (ClusterError, ParseError) as error:
        return failed(host, str(error))
    return True
