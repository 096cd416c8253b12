"""Namespaces that admit the pods which gpunode brings into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pyinfra import host

from gpunode.base.reading import ParseError
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.pod_security import asking, namespace_change, parse_labels
from gpunode.operations.control_plane import runner
from gpunode.operations.device_plugin import told
from gpunode.operations.failure import OperationRefused, node_operation
from gpunode.operations.shared_once import once_per_run
from gpunode.settings import Settings


@node_operation
@once_per_run("namespaces that admit the plugin's pods")
def admitted(namespaces: Mapping[str, str], cluster_of: Settings) -> Iterator[Any]:
    """Keep the label by which Pod Security admits pods that mount folders of the node; helm would set none.

    + namespaces: by name, with the setting that chooses each
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    kubernetes = cluster_of.kubernetes
    cluster = Cluster(kubernetes, cluster_of.proxy, runner(kubernetes))
    try:
        labels = {
            name: parse_labels(cluster.told(f"kubectl get namespace {name}", asking(kubernetes, name)))
            for name in namespaces
        }
    except (ClusterError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    changes = [namespace_change(kubernetes, name, labels[name], setting) for name, setting in namespaces.items()]
    if refused := [change.said for change in changes if change.refused]:
        raise OperationRefused("\n".join([*refused, "nothing was changed in the cluster"]))
    if not any(change.words for change in changes):
        host.noop("; ".join(change.said for change in changes) or "no namespace of gpunode's")
        return
    for change in changes:
        if change.words:
            host.log(f"{change.said}: to admit pods that mount folders of the node")
            yield told(partial(cluster.told, f"kubectl {change.said}", change.words, change.stdin))
