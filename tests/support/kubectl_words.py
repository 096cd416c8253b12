"""The words of kubectl by which a cluster is read and changed."""

from __future__ import annotations

from gpunode.kubernetes.device_plugin.cluster import Cluster
from gpunode.kubernetes.helm.commands import Command
from gpunode.kubernetes.helm.session import Output
from gpunode.kubernetes.nodes.extended_resources import ResourceChange
from gpunode.kubernetes.nodes.labels import LabelChange
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.repositories import ProxySettings


def _cluster(kubernetes: KubernetesSettings) -> tuple[Cluster, list[str]]:
    """Return a cluster without nodes, and the words of the commands that it was sent."""
    words: list[str] = []

    def run(command: Command) -> Output:
        words.extend(command.words)
        return Output(0, '{"items": []}', "")

    return Cluster(kubernetes, ProxySettings.model_validate({}), run), words


def listed(kubernetes: KubernetesSettings) -> list[str]:
    """Return the words by which all nodes are listed."""
    cluster, words = _cluster(kubernetes)
    cluster.nodes()
    return words


def labelled(kubernetes: KubernetesSettings, name: str, change: LabelChange) -> list[str]:
    """Return the words by which a node's labels change."""
    cluster, words = _cluster(kubernetes)
    cluster.label(name, change)
    return words


def counted(kubernetes: KubernetesSettings, name: str, change: ResourceChange) -> list[str]:
    """Return the words by which a node's extended resources change."""
    cluster, words = _cluster(kubernetes)
    cluster.count_resources(name, change)
    return words
