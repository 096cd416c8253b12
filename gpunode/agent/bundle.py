"""A bundle: what one host is to be, in one file that is signed as it is. Pure.

It holds the host's own data and nobody else's, its number, how long it counts, and which program carries it out. What a
cluster is to get is not part of it: a node that pulls has no credentials of its cluster.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from gpunode.agent.pull import SCHEMA
from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error
from gpunode.settings import Settings, SettingsError, component_models, settings_from

# What is of a cluster as a whole, or made by it: a push does that.
OF_CLUSTER = frozenset(
    {
        "kubernetes", "device_plugin", "gpu_operator", "gpushare", "sharing", "dcgm_exporter_chart",
        "rdma_shared_device_plugin",
    }
)  # fmt: skip


class BundleError(CodedError):
    """Say which host's settings no bundle can carry, and what to do."""

    code = command_error(
        "agent.no-bundle", "A host's settings cannot be put into a bundle.",
        "Part of them comes from other hosts (an IMEX domain) or the cluster, or cannot be written as JSON. Nothing "
        "was written.",
        remedy="configure this host with a push, and leave it out with --limit", exit="3",
    )  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Hold what carries bundles out: the digest of its file, and the Python and machine that it is made for."""

    sha256: str
    python: str
    machine: str


@dataclass(frozen=True)
class Bundle:
    """Hold what is signed. issued, expires: UTC, in whole seconds; number: it rises from one bundle to the next."""

    host: str
    number: int
    issued: datetime
    expires: datetime
    gpunode: str
    program: Program
    settings: Mapping[str, Any]

    def text(self) -> str:
        """Return the file's content, the same for the same."""
        found = {
            "schema": SCHEMA,
            **asdict(self),
            "issued": _told(self.issued),
            "expires": _told(self.expires),
        }
        return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _told(when: datetime) -> str:
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def carried(host: str, data: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """Return the data that a bundle carries for a host; raise BundleError where it would become something else by it.

    data: the host's, its groups' among them; settings: what they are on the controller

    Of a cluster's node nothing that disturbs it is done by a pull: it cannot be drained without the cluster's
    credentials, and waits for a push.
    """
    if settings.imex.enabled:
        raise BundleError(
            f"{host}: imex: the nodes of its domain are other hosts of the inventory, which a bundle does not carry: "
            "bring these hosts by a push, and leave them out by --limit"
        )
    found = {name: value for name, value in data.items() if name in component_models() and name not in OF_CLUSTER}
    found.pop("engine", None)
    if settings.kubernetes.enabled:
        found["disruption"] = {**found.get("disruption", {}), "allow": "nothing"}
    try:
        text = json.dumps(found)
    except (TypeError, ValueError) as error:
        raise BundleError(f"{host}: its data cannot be written as JSON: {error}; give texts, numbers, lists") from None
    again: dict[str, Any] = json.loads(text)
    try:
        carried_settings = settings_from(again)
    except SettingsError as error:
        raise BundleError(
            f"{host}: without what is of its cluster its settings are refused, and a bundle has no more: {error}; "
            "bring this host by a push, and leave it out by --limit"
        ) from None
    if other := _others(settings, carried_settings, ("disruption",) if settings.kubernetes.enabled else ()):
        raise BundleError(f"{host}: {', '.join(other)} would become something else in JSON: give lists, and no tuples")
    return again


def _others(before: Settings, after: Settings, left: Collection[str]) -> list[str]:
    """Return the components that are not the same."""
    one, other = before.to_json(), after.to_json()
    return [
        name for name in one if one[name] != other[name] and name not in OF_CLUSTER and name not in (*left, "engine")
    ]
