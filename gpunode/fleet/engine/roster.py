"""The hosts of an inventory as an engine takes them: read once by the controller, which contacts none of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from gpunode.fleet.engine.address import EngineError
from gpunode.fleet.engine.parts import Member, torn, torn_domain
from gpunode.fleet.fingerprints import fingerprints
from gpunode.fleet.inventory import foreign_names, limited, load_inventory
from gpunode.fleet.run.child import limit_pattern
from gpunode.settings import check_hosts
from gpunode.settings.host_data import data_of


def roster(inventory: Path, limit: Collection[str] = (), only: Collection[str] | None = None) -> tuple[Member, ...]:
    """Return the hosts that are taken, in the inventory's order; raise SettingsError, InventoryError, EngineError.

    only: these hosts alone, by name
    """
    found = load_inventory(inventory)
    data = {host.name: data_of(host).data for host in found}
    settings = check_hosts(data, foreign_names())
    of_these = None if only is None else frozenset(only)
    names = [name for name in limited(found, limit) if of_these is None or name in of_these]
    prints = fingerprints({name: settings[name] for name in names}, data)
    groups = frozenset(map(str, found.groups))
    members = tuple(
        Member(
            name,
            limit_pattern(name, groups),
            prints[name],
            settings[name].engine.site,
            settings[name].kubernetes.enabled,
            ", ".join(sorted(settings[name].imex.nodes)) if settings[name].imex.enabled else None,
        )
        for name in names
    )
    if sites := torn(members):
        told = ", ".join(site or "none" for site in sites)
        raise EngineError(
            f"the hosts of one cluster are at several sites ({told}), and one worker has to reach all of them: give "
            "them one engine.site"
        )
    if hosts := torn_domain(members):
        raise EngineError(
            f"the hosts of one IMEX domain are not at one place ({', '.join(hosts)} are at several): nvidia-imex is "
            "stopped on all of them before it starts on any, by one worker. Give all of them one engine.site, and the "
            "same kubernetes.enabled"
        )
    return members
