"""What an inventory asks, and whether that is still what a rollout was begun with: hosts, addresses, settings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpunode.base.disruption import Disruption
from gpunode.fleet.host_data import data_of
from gpunode.fleet.inventory import foreign_names, load_inventory
from gpunode.settings import Settings, check_hosts

# What says which machine a host is; the rest of pyinfra's own data says how it is reached.
_ADDRESS = ("ssh_hostname", "ssh_port")
_MOST_NAMED = 5


@dataclass(frozen=True)
class Asked:
    """Hold what a rollout needs of an inventory: its hosts' fingerprints, its groups, its bounds on disruption.

    `allowed` is host -> disruption.allow.
    """

    hosts: dict[str, str]
    groups: frozenset[str]
    max_parallel: int
    allowed: Mapping[str, Disruption] = field(default_factory=dict)


def asked(inventory: Path) -> Asked:
    """Read an inventory anew, without connecting; raise InventoryError or SettingsError."""
    found = load_inventory(inventory)
    data = {host.name: data_of(host).data for host in found}
    settings = check_hosts(data, foreign_names())
    # One for all hosts of a run, which check_hosts sees to.
    bound = next(iter(settings.values())).disruption.max_parallel
    allowed = {host: Disruption[each.disruption.allow] for host, each in settings.items()}
    return Asked(fingerprints(settings, data), frozenset(found.groups), bound, allowed)


def fingerprints(settings: Mapping[str, Settings], data: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return host -> SHA-256 (hex) of its settings and its address."""
    return {
        host: hashlib.sha256(
            json.dumps([found.digest(), *(str(data[host].get(name)) for name in _ADDRESS)]).encode()
        ).hexdigest()
        for host, found in settings.items()
    }


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Return what changed from one set of fingerprints to another, None where nothing did."""
    said = [
        _named("new", [host for host in now if host not in before]),
        _named("gone", [host for host in before if host not in now]),
        _named(
            "with other settings or another address", [host for host in now if before.get(host, now[host]) != now[host]]
        ),
    ]
    return "; ".join(text for text in said if text) or None


def _named(what: str, hosts: list[str]) -> str:
    more = f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
    return f"{what}: {', '.join(hosts[:_MOST_NAMED])}{more}" if hosts else ""
