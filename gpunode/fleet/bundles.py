"""Bundles of an inventory's hosts, and the program that they name, written where nodes fetch them."""

from __future__ import annotations

import gzip
import hashlib
import io
import platform
import tarfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib.metadata import Distribution, PackageNotFoundError, distribution, entry_points, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpunode import PACKAGE, REPOSITORY, ROOMS

from gpunode.base import fast_import  # noqa: F401  # isort: skip
from gpunode.agent.bundle import Bundle, Program, carried, signature
from gpunode.agent.collected import SILENT, Collected, judged
from gpunode.agent.pull import BUNDLE, OWN
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.reading import ParseError
from gpunode.facts.records import AgentReport
from gpunode.fleet import nodes as fleet
from gpunode.fleet.drift import unread
from gpunode.fleet.inventory import checked, limited, load_inventory
from gpunode.fleet.reports.whole_file import write_whole

# Packages that no node needs, and what `gpunode init` writes: its inventories name all hosts of a site.
_LEFT_OUT = ("reference", "repository")
# What a wheel has in the package, and a checkout next to it. The lab stays out: it simulates hardware.
_ROOMS = ("facts", "operations", "deploys", "templates")
# Of what gpunode needs, what keeps histories: a controller has those, and nodes' reports are collected for it.
_OF_CONTROLLERS = frozenset({"alembic", "sqlalchemy"})


def packed() -> tuple[bytes, Program]:
    """Return gpunode and what it needs as one file, for nodes with the same Python, and what a bundle says of it.

    It comes from what is installed here, which `make setup`, or pip with the lock, has checked by digests; a node
    fetches nothing from an index. Equal environments make equal files.
    """
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, text, mode in sorted(_files()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), mode
            archive.addfile(member, io.BytesIO(text))
    found = gzip.compress(plain.getvalue(), compresslevel=6, mtime=0)
    python = ".".join(platform.python_version_tuple()[:2])
    return found, Program(hashlib.sha256(found).hexdigest(), python, platform.machine())


def _files() -> Iterator[tuple[str, bytes, int]]:
    yield "bin/pyinfra", _pyinfra().encode(), 0o755
    ours = {path.relative_to(PACKAGE): path for path in _below(PACKAGE)}
    ours |= {path.relative_to(ROOMS): path for room in _ROOMS for path in _below(ROOMS / room)}
    for inner, path in ours.items():
        if inner.parts[0] not in _LEFT_OUT:
            yield f"site-packages/gpunode/{inner}", path.read_bytes(), 0o644
    for name in OWN:
        path = (ROOMS if name.startswith("deploys/") else REPOSITORY) / name
        yield f"site-packages/gpunode/repository/{name}", path.read_bytes(), 0o644
    # Its version is looked up among the installed packages, whether its files are there or in a checkout.
    own = distribution("gpunode")
    yield f"site-packages/gpunode-{own.version}.dist-info/METADATA", (own.read_text("METADATA") or "").encode(), 0o644
    for each in closure():
        for name, text in _of(each):
            yield f"site-packages/{name}", text, 0o644


def _pyinfra() -> str:
    """Return pyinfra's program, as pip would write it, for whatever Python runs it."""
    (start,) = entry_points(group="console_scripts", name="pyinfra")
    module, _, function = start.value.partition(":")
    return f"#!/usr/bin/env python3\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"


def _below(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without compiled ones."""
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from _below(path)
        elif path.is_file():
            yield path


def _of(found: Distribution) -> Iterator[tuple[str, bytes]]:
    for each in found.files or ():
        path = Path(str(each.locate()))
        # Programs stand beside site-packages; a node runs pyinfra by the one above.
        if ".." not in each.parts and "__pycache__" not in each.parts and path.is_file():
            yield str(each), path.read_bytes()


def closure() -> list[Distribution]:
    """Return the installed packages that gpunode needs, without its extras, and without itself."""
    known: dict[str, Distribution] = {}
    todo = [(Requirement(text), "") for text in distribution("gpunode").requires or ()]
    while todo:
        required, extra = todo.pop()
        if required.marker is not None and not required.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(required.name)
        if name in _OF_CONTROLLERS:
            continue
        try:
            found = known.get(name) or distribution(name)
        except PackageNotFoundError:
            continue
        fresh = name not in known
        known[name] = found
        for each in found.requires or ():
            wanted = Requirement(each)
            todo += [(wanted, asked) for asked in required.extras]
            if fresh:
                todo.append((wanted, ""))
    return [known[name] for name in sorted(known)]


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
        remedy, cause = "install the agent again: `gpunode agent install`", str(error)
        item = Finding("agent", FindingClass.ERROR, "report", "unreadable", "readable", cause, remedy, code=SILENT)
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
    inventory: Path, limit: Collection[str], key: Path, out: Path, number: int, now: datetime, expires: datetime,
    withdrawn: Collection[int] = (),
) -> Written:  # fmt: skip
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
        bundle = Bundle(name, number, now, expires, version("gpunode"), program, content, tuple(withdrawn))
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
