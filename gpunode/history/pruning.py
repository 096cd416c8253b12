"""Remove what is old from a history. What is so still stays, however long it has been so."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, exists, select

from gpunode.history.connection import writing
from gpunode.history.place import Place
from gpunode.history.tables import findings, hosts, inventories, prepare, records


@dataclass(frozen=True)
class Pruned:
    """Hold how much was removed."""

    findings: int
    records: int
    hosts: int


def prune(place: Place, before: datetime) -> Pruned:
    """Remove what ended, and was recorded, before a time, of all inventories; raise HistoryError."""
    found = Pruned(0, 0, 0)
    with writing(place) as connection:
        prepare(connection)
        asked = select(inventories.c.id).order_by(inventories.c.id).with_for_update()
        for number in connection.execute(asked).scalars().all():
            one = prune_within(connection, before, number)
            found = Pruned(found.findings + one.findings, found.records + one.records, found.hosts + one.hosts)
    return found


def prune_within(connection: Connection, before: datetime, inventory: int) -> Pruned:
    """Remove it of one inventory, within a transaction that writes."""
    of_inventory = select(hosts.c.id).where(hosts.c.inventory_id == inventory)
    old = delete(findings).where(findings.c.host_id.in_(of_inventory), findings.c.ended < before)
    ended = connection.execute(old).rowcount
    recorded = connection.execute(
        delete(records).where(records.c.inventory_id == inventory, records.c.at < before)
    ).rowcount
    kept = exists().where(findings.c.host_id == hosts.c.id)
    gone = connection.execute(delete(hosts).where(hosts.c.inventory_id == inventory, hosts.c.gone < before, ~kept))
    return Pruned(ended, recorded, gone.rowcount)
