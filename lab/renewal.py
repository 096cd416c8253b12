"""A node made anew from what it was made from: no image and no repository is built, or compared with its sources."""

from __future__ import annotations

from pathlib import Path

from lab import nodes
from lab.cache import cache_dir, locked
from lab.image import build_id
from lab.nodes import Node
from lab.podman import inspect_containers
from lab.state import labs_folder


def renewed(node: Node, *, gpu: str | None = None, gpus: int | None = None) -> Node:
    """Make the node anew from its base image, as `nodes.recreate` does, and return it when ready.

    `recreate` first asks whether image and repositories are up to date, which takes longer than all else; here the
    node is given what it had. Where the cache has lost that, it is `recreate` that makes it. A node that was made from
    a copy of another (`nodes.up(root=…)`) is bare afterwards. Raises LabError if the node does not become ready.
    """
    model, number = gpu or node.gpu, node.gpus if gpus is None else gpus
    found = inspect_containers(f"name=^{node.container}$")
    parts = _made_of(found[0]["Config"]["Labels"]) if found else None
    if parts is None:
        return nodes.recreate(node, gpu=model, gpus=number)
    nodes._check_demand(1, model, number)
    with locked(labs_folder() / f"{node.lab}.lock"):
        fresh = Node(node.name, node.container, node.address, model, number, node.lab, family=node.family)
        nodes._make(fresh, parts)
        nodes._write_state(node.lab, nodes._all_nodes(node.lab), parts.key_fingerprint)
        nodes._wait(fresh, lambda line: None)
        return fresh


def _made_of(labels: dict[str, str]) -> nodes._Parts | None:
    """Return the base image and the repositories of a container with these labels; None where the cache lost them."""
    build, mirror = labels.get("gpunode.build", ""), Path(labels.get("gpunode.mirror", ""))
    image = next((path for path in cache_dir().glob("image-*") if build and build_id(path) == build), None)
    if image is None or image.name.endswith(".partial") or not mirror.is_dir():
        return None
    return nodes._Parts(image, build, mirror, labels["gpunode.key"])
