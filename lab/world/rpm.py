"""The tables of NVIDIA's rpm repositories: which packages each holds, how they are numbered, and what they need.

A table says for every row where it is from and how sure that is. What a row calls `unknown` nobody knows; under
`assumed` stands what the lab builds in its place. A table that is `like` another says what differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from gpunode.lab.packages.rpm import Rpm
from gpunode.lab.world.rpm_row import CONFIDENCES, RELATIONS

_FOLDER = Path(__file__).parent
NAMES = ("rhel8", "rhel9", "rhel10", "fedora42", "amzn2023", "sles15", "opensuse15", "suse16")


class WorldError(ValueError):
    """Say which row of which table is not understood."""


@dataclass(frozen=True)
class Shape:
    """Hold how packages are numbered: the epoch (0: none), what stands behind the version, and in it (a module's)."""

    epoch: int
    release: str
    suffix: str = ""


@dataclass(frozen=True)
class Row:
    """Hold one row: a package of every driver version from branch `first` to `last` but `without`, or of its own.

    `relations` are what is known, `assumed` what the lab builds beside it, `unknown` what nobody knows; each maps a
    relation (requires, provides ...) to rpm's words, with V, V-R and <branch> not yet filled in. `flavour` is open or
    proprietary where module streams tell it; `stream` says whether streams list it at all.
    """

    name: str
    shape: Shape
    architecture: str
    relations: Mapping[str, tuple[str, ...]]
    assumed: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]
    source: str
    confidence: str
    first: int = 0
    last: int = 9999
    without: tuple[str, ...] = ()
    version: str | None = None
    flavour: str | None = None
    stream: bool = True

    def applies(self, version: str) -> bool:
        """Say whether there is such a package of a driver's version."""
        return self.first <= int(version.partition(".")[0]) <= self.last and version not in self.without

    def package(self, version: str) -> Rpm:
        """Return the package of a version, its relations known and assumed, without any file."""
        epoch, full = self.shape.epoch, f"{version}{self.shape.suffix}"
        numbered = f"{epoch}:{full}" if epoch else full
        # A module that comes built is numbered by its kernel, too; what it needs is of the driver's version alone.
        plain = f"{epoch}:{version}" if epoch else version

        def filled(kind: str) -> tuple[str, ...]:
            words = (*self.relations.get(kind, ()), *self.assumed.get(kind, ()))
            return tuple(_filled(item, version, plain, f"{numbered}-{self.shape.release}") for item in words)

        return Rpm(
            name=_branched(self.name, version),
            version=full,
            description=f"{self.name} of branch {version.partition('.')[0]}",
            epoch=epoch,
            release=self.shape.release,
            architecture=self.architecture,
            requires=filled("requires"),
            provides=filled("provides"),
            conflicts=filled("conflicts"),
            obsoletes=filled("obsoletes"),
            recommends=filled("recommends"),
        )


@dataclass(frozen=True)
class Modules:
    """Hold the module streams of a repository: `flavours` maps open and proprietary to the names of theirs."""

    module: str
    default: str
    latest: tuple[str, ...]
    by_branch: tuple[str, ...]
    flavours: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Closure:
    """Hold which packages came with one that was asked for, somewhere; not all of them unless `complete`."""

    system: str
    asked: str
    version: str | None
    packages: tuple[str, ...]
    complete: bool


@dataclass(frozen=True)
class RpmWorld:
    """Hold one repository's table.

    `seen` are driver versions that somebody saw there, `lab` those that the lab adds; `listed` are names that a listing
    of what was seen had, which need not be all. `transitional` is the version of packages that hold nothing, with what
    these require. `elsewhere` are what NVIDIA's packages need of the distribution. `fingerprint` is None where no two
    sources give the key's in full.
    """

    name: str
    manager: str
    platform: str
    key_id: str
    fingerprint: str | None
    seen: tuple[str, ...]
    lab: tuple[str, ...]
    listed: tuple[str, ...]
    rows: tuple[Row, ...]
    elsewhere: tuple[Row, ...]
    transitional: tuple[str, Mapping[str, tuple[str, ...]]] | None
    modules: Modules | None
    closures: tuple[Closure, ...]
    dkms_place: str
    unknown: tuple[str, ...]

    @property
    def versions(self) -> tuple[str, ...]:
        """Return all driver versions, oldest first."""
        return tuple(sorted({*self.seen, *self.lab}, key=_key))

    def of_version(self, version: str) -> list[Rpm]:
        """Return the packages of one driver version."""
        return [row.package(version) for row in self.rows if row.version is None and row.applies(version)]

    def of_their_own(self) -> list[Rpm]:
        """Return the packages that are numbered apart from the driver."""
        return [row.package(row.version) for row in self.rows if row.version is not None]

    def transitional_packages(self) -> list[Rpm]:
        """Return the empty packages that pull the next branch."""
        if self.transitional is None:
            return []
        version, packages = self.transitional
        rows = {row.name: row for row in self.rows}
        return [
            Rpm(name, version, "transitional package", epoch=rows[name].shape.epoch, release=rows[name].shape.release,
                architecture=rows[name].architecture, requires=requires)
            for name, requires in packages.items()
        ]  # fmt: skip

    def from_elsewhere(self) -> list[Rpm]:
        """Return what NVIDIA's packages need of the distribution."""
        return [row.package(str(row.version)) for row in self.elsewhere]

    def packages(self) -> list[Rpm]:
        """Return every package of the repository."""
        of_drivers = [package for version in self.versions for package in self.of_version(version)]
        return [*of_drivers, *self.transitional_packages(), *self.of_their_own()]

    def streams(self) -> dict[str, list[Rpm]]:
        """Return stream -> the packages that it lists; none where there are no streams.

        What the live ones list is unknown; here it is every version of the branch, without the other flavour's module.
        """
        if self.modules is None:
            return {}
        found: dict[str, list[Rpm]] = {}
        branches = sorted({version.partition(".")[0] for version in self.versions}, key=int)
        for flavour, names in self.modules.flavours.items():
            for name in names:
                for branch in branches if "<branch>" in name else branches[-1:]:
                    found[name.replace("<branch>", branch)] = self._listed(branch, flavour)
        return found

    def _listed(self, branch: str, flavour: str) -> list[Rpm]:
        rows = [row for row in self.rows if row.stream and row.version is None and row.flavour in (None, flavour)]
        versions = [version for version in self.versions if version.partition(".")[0] == branch]
        listed = [row.package(version) for version in versions for row in rows if row.applies(version)]
        if self.transitional is not None and self.transitional[0].partition(".")[0] == branch:
            names = {row.name for row in rows}
            listed += [package for package in self.transitional_packages() if package.name in names]
        return listed


@cache
def rpm_world(name: str) -> RpmWorld:
    """Return the table of a repository by the name of its folder (`rhel9`); raise WorldError for rows that are none."""
    table = _content(name)
    own_shapes = {kind: _shape(row, table["repository"]["dist"]) for kind, row in table["shapes"].items()}
    rows = list(_rows(name, table["packages"], own_shapes, table["repository"]["dist"]))
    recommends = table.get("recommends", {})
    rows = [_recommending(row, recommends.get(row.name, ())) for row in rows]
    elsewhere = tuple(_rows(name, table["elsewhere"], own_shapes, table["repository"]["dist"]))
    key, versions, modules = table["key"], table["versions"], table["modules"]
    transitional = table["transitional"]
    return RpmWorld(
        name=table["repository"]["name"],
        manager=table["repository"]["manager"],
        platform=table["repository"]["platform"],
        key_id=str(key["id"]),
        fingerprint=None if key["fingerprint"] == "unknown" else key["fingerprint"],
        seen=tuple(map(str, versions["seen"])),
        lab=tuple(map(str, versions["lab"])),
        listed=tuple(table.get("listed", ())),
        rows=tuple(rows),
        elsewhere=elsewhere,
        transitional=None if transitional == "none" else (
            str(transitional["version"]),
            MappingProxyType({name: tuple(requires) for name, requires in transitional["packages"].items()}),
        ),
        modules=None if modules == "none" else Modules(
            modules["module"], modules["default"], tuple(modules["latest"]), tuple(modules["by_branch"]),
            MappingProxyType({flavour: tuple(names) for flavour, names in modules["flavours"].items()}),
        ),
        closures=tuple(
            Closure(row["system"], row["asked"], row.get("version"), tuple(row["packages"]), row.get("complete", True))
            for row in table["closures"]
        ),
        dkms_place=table["module_place"]["dkms"],
        unknown=tuple(map(str, table["unknown"])),
    )  # fmt: skip


def _content(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    if "like" not in found:
        return found
    base = _content(found["like"])
    further = found.pop("packages", [])
    return {**base, **found, "packages": [*base["packages"], *further]}


def _shape(row: Mapping[str, Any], dist: str) -> Shape:
    known = {**row, **row.get("assumed", {})}
    return Shape(int(known["epoch"]), f"{known['release']}{dist if row['dist'] else ''}", row.get("suffix", ""))


def _rows(table: str, found: Sequence[Mapping[str, Any]], shapes: Mapping[str, Shape], dist: str) -> Iterator[Row]:
    source = ""
    for row in found:
        source = row["source"] if not str(row["source"]).startswith("same") else source
        if row.get("confidence") not in CONFIDENCES or not source:
            raise WorldError(f"{table}: {row}: a row says its source, and its confidence is one of {CONFIDENCES}")
        # One that is numbered apart says by itself what stands behind its version.
        own = Shape(int(row.get("epoch", 0)), f"{row.get('release', 1)}{dist if row.get('dist', True) else ''}")
        for name in row.get("names", [row.get("name")]):
            yield Row(
                name=name,
                shape=own if "version" in row else shapes[row.get("shape", "driver")],
                architecture=row.get("arch", "x86_64"),
                relations=_relations(row),
                assumed=_relations(row.get("assumed", {})),
                unknown=tuple(row.get("unknown", ())),
                source=source,
                confidence=row["confidence"],
                first=int(row.get("first", 0)),
                last=int(row.get("last", 9999)),
                without=tuple(map(str, row.get("without", ()))),
                version=str(row["version"]) if "version" in row else None,
                flavour=row.get("flavour"),
                stream=row.get("stream", True),
            )


def _relations(row: Mapping[str, Any]) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({kind: tuple(row[kind]) for kind in RELATIONS if kind in row})


def _recommending(row: Row, recommends: Sequence[str]) -> Row:
    relations = {**row.relations, **({"recommends": tuple(recommends)} if recommends else {})}
    return replace(row, relations=MappingProxyType(relations))


def _branched(text: str, version: str) -> str:
    return text.replace("<branch>", version.partition(".")[0])


def _filled(item: str, version: str, plain: str, full: str) -> str:
    words = _branched(item, version).split(" ")
    if len(words) == 3:
        words[2] = {"V": plain, "V-R": full}.get(words[2], words[2])
    return " ".join(words)


def _key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


__all__ = ["NAMES", "Closure", "Modules", "Row", "RpmWorld", "Shape", "WorldError", "rpm_world"]
