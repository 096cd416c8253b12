"""The machines of a Kubernetes cluster, out of what `kubectl get nodes -o json` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpunode.fleet.known.machines import Known, KnownError, KnownHost, Notes, is_name

SOURCE = "a Kubernetes cluster's nodes"
_COMMAND = "kubectl get nodes -o json"
_ROLE = "node-role.kubernetes.io/"
# Labels whose value is worth a group: what GPU feature discovery says, and the clouds' pools of nodes.
_GROUPED = (
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
)
_ADDRESSES = {"internal": ("InternalIP", "ExternalIP"), "external": ("ExternalIP", "InternalIP")}


def known(document: Any, address: str = "internal") -> Known:
    """Return what the document knows, by the nodes' internal or external addresses; raise KnownError.

    A host is named as its node, which is how gpunode finds the node of a host.
    """
    notes, hosts, groups = Notes(), dict[str, KnownHost](), dict[str, list[str]]()
    for node in _nodes(document):
        metadata = _mapping(node, "metadata")
        name: Any = metadata.get("name")
        labels = {str(key): str(value) for key, value in _mapping(metadata, "labels").items()}
        if not is_name(name):
            notes.add(repr(name), "left out: its name must be of letters, digits and . _ - : %")
        elif labels.get("kubernetes.io/os", "linux") != "linux":
            notes.add(name, f"left out: it runs {labels['kubernetes.io/os']!r}, and gpunode is for Linux")
        elif name in hosts:
            notes.add(name, "is there twice; the first counts")
        else:
            hosts[name] = KnownHost(name, _data(name, node, address, notes))
            for group in _groups(labels):
                groups.setdefault(group, []).append(name)
    if hosts:
        notes.add(
            "every host", "a cluster does not say who logs in, nor by which key: see ssh_user, ssh_key in group_data"
        )
    members = {group: tuple(names) for group, names in groups.items()}
    return Known(SOURCE, tuple(hosts.values()), members, notes.found(), user="root")


def _nodes(document: Any) -> list[Any]:
    kind = document.get("kind") if isinstance(document, dict) else None
    items = [document] if kind == "Node" else document.get("items") if kind in ("List", "NodeList") else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise KnownError(f"these are no nodes as `{_COMMAND}` prints them: kind must be List, NodeList or Node")
    for item in items:
        if item.get("kind", "Node") != "Node":
            raise KnownError(f"there is a {item['kind']!r} among the items, and no Node: use `{_COMMAND}`")
    return items


def _mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the mapping below a key; an empty one where there is none."""
    return found if isinstance(found := of.get(key), dict) else {}


def _data(name: str, node: Mapping[str, Any], address: str, notes: Notes) -> dict[str, Any]:
    entries = _mapping(node, "status").get("addresses")
    found = {
        entry.get("type"): entry.get("address")
        for entry in reversed(entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and is_name(entry.get("address"))
    }
    for kind in _ADDRESSES[address]:
        if kind in found:
            if kind != _ADDRESSES[address][0]:
                notes.add(name, f"has no {_ADDRESSES[address][0]}; its {kind} is taken")
            return {"ssh_hostname": found[kind]}
    notes.add(name, "says no address; its name has to be known to ssh")
    return {}


def _groups(labels: Mapping[str, str]) -> Iterator[str]:
    for label, value in labels.items():
        if label.startswith(_ROLE) and label != _ROLE:
            yield label.removeprefix(_ROLE)
        elif label in _GROUPED and value:
            yield value
