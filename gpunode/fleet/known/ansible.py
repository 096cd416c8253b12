"""Hosts and groups of Ansible's, out of what `ansible-inventory --list` prints (with --export, too).

The document is what any of Ansible's dynamic inventories prints: group -> {hosts, children, vars} or a list of hosts,
and _meta.hostvars: host -> variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.fleet.known.ansible_connection import connection, plain
from gpunode.fleet.known.machines import LOCAL, Known, KnownError, KnownHost, Notes, is_name

SOURCE = "Ansible's inventory"
_LIST = "ansible-inventory -i INVENTORY --list"
# Groups that every inventory of Ansible's has, and that pyinfra has no use for.
_EVERY = ("all", "ungrouped")


@dataclass(frozen=True)
class _Group:
    hosts: tuple[str, ...]
    children: tuple[str, ...]
    variables: Mapping[str, Any]


def known(document: Any) -> Known:
    """Return what the document knows; raise KnownError where it is none of Ansible's."""
    if not isinstance(document, dict) or not document:
        raise KnownError(f"this is no inventory as `{_LIST}` prints it: a mapping of groups is")
    groups = {name: _group(name, entry) for name, entry in document.items() if name != "_meta"}
    of_hosts = _hostvars(document.get("_meta"))
    # dict.fromkeys: a set that keeps the inventory's order.
    in_groups = {name: dict.fromkeys(_walk(groups, name)) for name in ("all", *groups)}
    names = dict.fromkeys([*(host for each in in_groups.values() for host in each), *of_hosts])
    having = [(groups[name].variables, in_groups[name] if name != "all" else names) for name in _by_weight(groups)]
    notes, hosts, own_names = Notes(), dict[str, KnownHost](), dict[str, str]()
    for name in names:
        of_groups = [of_group for of_group, members in having if name in members]
        variables: dict[str, Any] = {}
        for each in (*of_groups, of_hosts.get(name, {})):
            variables |= each
        found = _host(name, variables, notes)
        if found is not None and found.name in hosts:
            notes.add(name, f"left out: {found.name} is there already")
        elif found is not None:
            own_names[name] = found.name
            hosts[found.name] = found
    members = {
        group: tuple(own_names[host] for host in in_groups[group] if host in own_names)
        for group in groups
        if group not in _EVERY
    }
    kept = {group: each for group, each in members.items() if each}
    return Known(SOURCE, tuple(hosts.values()), kept, notes.found())


def _host(name: str, variables: Mapping[str, Any], notes: Notes) -> KnownHost | None:
    by = plain(variables.get("ansible_connection", "ssh"))
    if not isinstance(by, str):
        notes.add(repr(name), "left out: its ansible_connection is encrypted, or no text")
        return None
    if by == "local":
        notes.add(name, f"is this machine itself (ansible_connection: local), which pyinfra calls {LOCAL}")
        return KnownHost(LOCAL)
    if by not in ("ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh"):
        notes.add(repr(name) if not is_name(name) else name, f"left out: gpunode reaches no host by {by!r}")
        return None
    if not is_name(name):
        notes.add(repr(name), "left out: its name must be of letters, digits and . _ - : %")
        return None
    return connection(name, variables, notes)


def _group(name: str, entry: Any) -> _Group:
    if isinstance(entry, list):
        entry = {"hosts": entry}
    if not isinstance(entry, dict):
        raise KnownError(f"group {name!r} must be a mapping with hosts, children or vars, or a list of hosts")
    found: dict[str, tuple[str, ...]] = {}
    for key in ("hosts", "children"):
        value = entry.get(key) or []
        if not isinstance(value, list | dict) or not all(isinstance(one, str) for one in value):
            raise KnownError(f"group {name!r}: {key} must be a list of names, as `{_LIST}` prints it")
        found[key] = tuple(value)
    variables = entry.get("vars") or {}
    if not isinstance(variables, dict):
        raise KnownError(f"group {name!r}: vars must be a mapping")
    return _Group(found["hosts"], found["children"], variables)


def _hostvars(meta: Any) -> dict[str, Mapping[str, Any]]:
    hostvars = (meta if isinstance(meta, dict) else {}).get("hostvars") or {}
    if not isinstance(hostvars, dict) or not all(isinstance(each, dict) for each in hostvars.values()):
        raise KnownError("_meta.hostvars must be a mapping of hosts to their variables")
    return hostvars


def _walk(groups: Mapping[str, _Group], name: str) -> Iterator[str]:
    """Yield the hosts of a group, and those of its children, in the inventory's order; some maybe more than once."""
    seen: set[str] = set()
    ahead = [name]
    while ahead:
        name = ahead.pop()
        if name not in seen and name in groups:
            seen.add(name)
            yield from groups[name].hosts
            ahead += reversed(groups[name].children)


def _depths(groups: Mapping[str, _Group]) -> dict[str, int]:
    """Return how far below `all` each group is, by the longest way; raise KnownError where groups are in a circle."""
    depths = {name: 0 if name == "all" else 1 for name in groups}
    for _ in range(len(groups) + 1):
        deeper = {
            child: depths[name] + 1
            for name, group in groups.items()
            for child in group.children
            if child in depths and depths[child] <= depths[name]
        }
        if not deeper:
            return depths
        for child, depth in deeper.items():
            depths[child] = max(depths[child], depth)
    raise KnownError("groups of the inventory are children of one another, in a circle")


def _by_weight(groups: Mapping[str, _Group]) -> list[str]:
    """Return the groups that have variables (--export prints them there), the one that counts most last.

    That is the deepest; among groups of one depth Ansible goes by ansible_group_priority, then by name.
    """
    depths = _depths(groups)

    def order(name: str) -> tuple[int, int, str]:
        priority = str(groups[name].variables.get("ansible_group_priority", 1))
        return depths[name], int(priority) if re.fullmatch(r"-?[0-9]{1,9}", priority) else 1, name

    return sorted((name for name, group in groups.items() if group.variables), key=order)
