"""Namespaces that admit the pods which gpunode brings into them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from pyinfra import host

from gpunode.operations.control_plane import cluster_for, decided, told
from gpunode.operations.failure import node_operation
from gpunode.operations.shared_once import once_per_run
from gpunode.settings import Settings


@node_operation
@once_per_run("namespaces that admit the plugin's pods")
def admitted(namespaces: Mapping[str, str], cluster_of: Settings) -> Iterator[Any]:
    """Keep the label by which Pod Security admits pods that mount folders of the node; helm would set none.

    + namespaces: by name, with the setting that chooses each
    + cluster_of: settings of a node of the cluster, which say where it is
    """
    cluster = cluster_for(cluster_of)
    decision = decided(partial(cluster.decide_namespaces, namespaces))
    for step in decision.steps:
        if step.change is not None:
            host.log(f"{step.settles[0].cause}: to admit pods that mount folders of the node")
            yield told(partial(cluster.told, f"kubectl {step.action}", *step.change))
    if not decision.steps:
        host.noop("; ".join(f"{item.what} as desired" for item in decision.findings) or "no namespace of gpunode's")
