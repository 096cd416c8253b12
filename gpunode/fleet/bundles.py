"""Bundles of an inventory's hosts, written where nodes fetch them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path

from gpunode.base import fast_import  # noqa: F401  # isort: skip
from gpunode.agent.bundle import Bundle, carried, signature
from gpunode.agent.collected import SILENT, Collected, judged
from gpunode.agent.program import packed
from gpunode.agent.pull import BUNDLE
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.reading import ParseError
from gpunode.facts.records import AgentReport
from gpunode.fleet import nodes as fleet
from gpunode.fleet.drift import unread
from gpunode.fleet.inventory import checked, limited, load_inventory
from gpunode.fleet.reports.whole_file import write_whole


def collected(
    inventory: Path, watch: fleet.Watch, now: datetime, silent: timedelta, limit: Collection[str] = ()
) -> tuple[NodeReport, ...]:
    """Return a report per host: what its agent found, and whether that is recent; raise what fleet.read raises."""
    return tuple(_report(answer, now, silent) for answer in fleet.read(inventory, AgentReport, watch, limit=limit))


def _report(answer: fleet.Answer[Collected], now: datetime, silent: timedelta) -> NodeReport:
    if not isinstance(answer.reading, Collected):
        return NodeReport(answer.name, (unread(answer),))
    try:
        return judged(answer.name, answer.reading, now, silent)
    except ParseError as error:
        remedy = "install the agent anew: `gpunode agent install`"
        item = Finding("agent", FindingClass.ERROR, "report", "unreadable", "readable", str(error), remedy, code=SILENT)
        return NodeReport(answer.name, (item,))


@dataclass(frozen=True)
class Written:
    """Hold what was written: for which hosts, by which number, until when they count, and the program's digest."""

    hosts: tuple[str, ...]
    number: int
    expires: datetime
    program: str
    cautions: tuple[str, ...]


def write_bundles(
    inventory: Path, limit: Collection[str], key: Path, out: Path, number: int, now: datetime, expires: datetime
) -> Written:
    """Write a bundle for each host, and the program; nothing where one cannot be carried.

    Raises InventoryError, SettingsError, BundleError, SigningError, OSError.
    """
    found = load_inventory(inventory)
    data, settings = checked(found)
    names = limited(found, limit)
    contents = {name: carried(name, data[name], settings[name]) for name in names}
    archive, program = packed()
    signed = {}
    for name, content in contents.items():
        bundle = Bundle(name, number, now, expires, version("gpunode"), program, content)
        text = bundle.text().encode()
        signed[name] = signature(text, key) + text
    # First what bundles name: a node that fetches meanwhile finds it.
    place = out / "programs" / f"{program.sha256}.tar.gz"
    # One that was cut off, or altered, is mended so; nodes refuse it.
    if not place.exists() or place.read_bytes() != archive:
        _write(place, archive)
    for name, text in signed.items():
        _write(out / name / BUNDLE, text)
    in_cluster = [name for name in names if settings[name].kubernetes.enabled]
    caution = (
        f"{len(in_cluster)} of the hosts are nodes of a cluster: what disturbs them waits for a push, which drains "
        "them, and what is of the cluster is no part of their bundles"
    )
    return Written(tuple(names), number, expires, program.sha256, (caution,) if in_cluster else ())


def _write(path: Path, text: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
