"""What --engine names, and the parts of an inventory that workers take. Imported where pyinfra must not be.

Hosts of a cluster are one part: what is asked of the cluster, and what it is changed to, is decided once for all of
them. Hosts of an IMEX domain are in one part: its daemon is stopped on all of them before it starts on any. A worker
takes hosts of its own site alone.

What a part's command must find stands in its environment: a worker whose checkout is behind would else judge, or bring,
its hosts by settings that nobody asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from urllib.parse import urlsplit

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

LOCAL = "local"
DASK = "dask://"
# How Dask's encrypted addresses begin. Any local user may connect to 127.0.0.1, and who connects runs programs.
TLS = "tls://"
_SHAPES = "give local, or dask://HOST:PORT of a Dask scheduler"


class EngineError(CodedError):
    """Say why an engine cannot be used, and what to do."""

    code = command_error(
        "engine.refused", "The engine of --engine cannot be used.",
        "It is unknown, its scheduler does not answer, Dask is not installed, or it has no TLS certificates. Nothing "
        "was started. docs/scale.md describes how to set up an engine, and how to make the certificates.",
        remedy="do what the message says, or leave out --engine",
    )  # fmt: skip


def engine_of(text: str) -> str | None:
    """Return HOST:PORT of the scheduler that an engine names, None where it is this machine; raise EngineError."""
    if text == LOCAL:
        return None
    try:
        found = urlsplit(text)
        port = found.port
    except ValueError as error:
        raise EngineError(f"--engine {text}: {error}; {_SHAPES}") from None
    if found.username is not None or found.password is not None:
        # Never shown again: somebody put it where every list of processes has it.
        raise EngineError(f"--engine: no name and no password stands in an address; {_SHAPES}")
    if found.scheme != "dask" or not found.hostname or not port or found.path or found.query or found.fragment:
        raise EngineError(f"--engine {text}: there is no such engine; {_SHAPES}")
    return found.netloc


# Fewer hosts than the least are not worth a process, which takes a second to start; with more than the most, a worker
# that dies takes many with it, and memory grows.
LEAST, MOST = 32, 512
# So many parts for each worker, so that a slow one holds up few.
_EACH = 4


@dataclass(frozen=True)
class Member:
    """Hold what decides where a host is taken: its site (None: none is named), and whether it is in the cluster.

    pattern: what --limit takes for it alone; fingerprint: of its settings and its address, which the worker must have;
    domain: what names its IMEX domain, by which other hosts' data, too, say what it is to be; None where it is in none.
    disturbed: a run disturbs it, and disruption.max_parallel bounds at how many at once; cluster: its cluster's name
    """

    name: str
    pattern: str
    fingerprint: str
    site: str | None = None
    in_cluster: bool = False
    domain: str | None = None
    disturbed: bool = False
    cluster: str | None = None


@dataclass(frozen=True)
class Part:
    """Hold the hosts that one worker takes together.

    alone: no other such part is taken meanwhile, for each run keeps to the bound on what it disturbs by itself
    """

    members: tuple[Member, ...]
    site: str | None
    in_cluster: bool
    alone: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.members)

    @property
    def is_by_others(self) -> bool:
        """Say whether the whole inventory has to be read to know what these hosts are to be."""
        return self.in_cluster or any(member.domain is not None for member in self.members)

    @property
    def fingerprint(self) -> str:
        return joined({member.name: member.fingerprint for member in self.members})


def joined(fingerprints: Mapping[str, str]) -> str:
    """Return one fingerprint (SHA-256, hex) of many hosts', whatever their order."""
    return hashlib.sha256(json.dumps(sorted(fingerprints.items())).encode()).hexdigest()


def cut(members: Iterable[Member], workers: Mapping[str | None, int]) -> tuple[Part, ...]:
    """Return the parts of which each host is in one, in the inventory's order within each site, domains together.

    workers: site -> how many workers it has
    """
    members = tuple(members)
    disturbed = {member.domain for member in members if member.disturbed and member.domain is not None}
    by_place: dict[tuple[str | None, bool, bool], list[Member]] = {}
    for member in members:
        # Those of the cluster, and of a domain, stay together, whatever is done to them.
        is_disturbed = not member.in_cluster and (member.disturbed or member.domain in disturbed)
        place = (member.site, member.in_cluster, is_disturbed)
        by_place.setdefault(place, []).append(member)
    return tuple(
        Part(tuple(some), site, in_cluster, any(member.disturbed for member in some))
        for (site, in_cluster, _), those in by_place.items()
        for some in _batches(those, len(those) if in_cluster else _size(len(those), workers.get(site, 0)))
    )


def _size(hosts: int, workers: int) -> int:
    """Return how many hosts make a part."""
    return max(LEAST, min(MOST, -(-hosts // (max(1, workers) * _EACH))))


def torn(members: Iterable[Member]) -> Sequence[str | None]:
    """Return the sites of the cluster's hosts where there is more than one: no worker reaches all of them."""
    sites = dict.fromkeys(member.site for member in members if member.in_cluster)
    return tuple(sites) if len(sites) > 1 else ()


def torn_domain(members: Iterable[Member]) -> tuple[str, ...]:
    """Return the hosts of a domain that is at several sites, or partly in the cluster; none where there is no such."""
    places: dict[str, dict[tuple[str | None, bool], str]] = {}
    for member in members:
        if member.domain is not None:
            places.setdefault(member.domain, {})[member.site, member.in_cluster] = member.name
    return next((tuple(found.values()) for found in places.values() if len(found) > 1), ())


def _batches(members: Sequence[Member], many: int) -> Iterable[list[Member]]:
    """Yield so many members at once, and more where a domain has more."""
    units: dict[str, list[Member]] = {}
    for member in members:
        units.setdefault(f"host {member.name}" if member.domain is None else member.domain, []).append(member)
    batch: list[Member] = []
    for unit in units.values():
        if batch and len(batch) + len(unit) > many:
            yield batch
            batch = []
        batch += unit
    if batch:
        yield batch


PART = "GPUNODE_PART"


class PartError(CodedError):
    """Say that a worker has something else than whoever gave it the part."""

    code = command_error(
        "engine.other-settings",
        "A worker has another gpunode, or other settings for these hosts, than the controller.",
        "It would judge or change its hosts by the wrong settings. Nothing was done to these hosts.",
        remedy="bring the worker's checkout and gpunode to the controller's state, and start the worker in it",
    )


@dataclass(frozen=True)
class Expected:
    """Hold what is expected: gpunode's version, the fingerprint of the part's hosts, and how they are read.

    processes: by how many; None where the command decides that by itself. names: the part's
    hosts, where nothing else of the inventory is needed; None where the whole of it says what they are to be
    """

    gpunode: str
    fingerprint: str
    processes: int | None = None
    names: tuple[str, ...] | None = None

    def environment(self) -> dict[str, str]:
        """Return what tells a command so."""
        return {PART: json.dumps(asdict(self))}


def expected() -> Expected | None:
    """Return what this command must find; None where it is no part of another."""
    told = os.environ.get(PART)
    if not told:
        return None
    found = json.loads(told)
    return Expected(**{**found, "names": None if found["names"] is None else tuple(found["names"])})


def refuse_others(desired: Expected, fingerprints: Mapping[str, str]) -> None:
    """Raise PartError where this gpunode, or these hosts' settings and addresses, are not those that are expected."""
    here = version("gpunode")
    if here != desired.gpunode:
        raise PartError(
            f"this worker has gpunode {here}, and whoever asks has {desired.gpunode}: install the same on both"
        )
    if joined(fingerprints) != desired.fingerprint:
        raise PartError(
            "this worker's inventory has other settings or addresses for these hosts than the one of whoever asks: "
            "bring the worker's checkout to the same state, and start the worker in it"
        )
