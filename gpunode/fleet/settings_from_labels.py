"""What the nodes' labels in a cluster say, put into what is asked of them: for whoever reads nodes and changes none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gpunode.base.reading import Reading, Unknown
from gpunode.base.verdicts import Refusal
from gpunode.fleet.control_plane import reached
from gpunode.fleet.nodes import Answer
from gpunode.kubernetes.device_plugin.cluster import Cluster, nodes_or_unknown
from gpunode.kubernetes.mig_label import asks, by_label
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.settings import Settings

T = TypeVar("T", bound=Reading)


def settings_from_labels(inventory_path: Path, answers: tuple[Answer[T], ...]) -> tuple[Answer[T], ...]:
    """Return the answers with settings that hold what the labels say; the cluster is asked once, where any asks.

    A host whose label cannot be had has a `refusal`; where the cluster does not answer, its reading is Unknown.
    """
    asking = next((answer.settings for answer in answers if asks(answer.settings)), None)
    return answers if asking is None else tuple(_labelled(answers, _nodes(inventory_path, asking)))


def _labelled(answers: tuple[Answer[T], ...], nodes: Mapping[str, ClusterNode] | Unknown) -> Iterator[Answer[T]]:
    for answer in answers:
        found = by_label(answer.name, answer.settings, nodes)
        if isinstance(found, Refusal):
            yield replace(answer, refusal=found)
        elif not isinstance(found, Unknown):
            yield replace(answer, settings=found)
        elif answer.reading is None:
            yield answer
        else:
            yield replace(answer, reading=found, reason=found.reason)


def _nodes(inventory: Path, desired: Settings) -> Mapping[str, ClusterNode] | Unknown:
    with reached(inventory, desired.kubernetes) as run:
        return nodes_or_unknown(Cluster(desired.kubernetes, desired.proxy, run))
