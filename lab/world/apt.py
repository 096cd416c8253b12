"""The driver's packages in NVIDIA's repositories for apt: apt_driver.yaml, filled in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib import resources
from typing import Any

import yaml

from gpunode.lab.world.deb_row import FIELDS
from gpunode.packages.driver_packages.names import GLOBS


@dataclass(frozen=True)
class Package:
    """Hold one binary package as its repository's index tells it; relations are written as in debian/control.

    `driver` is the version of the driver that it is of, empty for what is none of it; `payload` says which of the lab's
    SIMULATED contents it has; `chosen` whether it comes only where it is asked for by name. `confidence` is the row's.
    """

    name: str
    version: str
    architecture: str = "amd64"
    pre_depends: str = ""
    depends: str = ""
    recommends: str = ""
    provides: str = ""
    conflicts: str = ""
    breaks: str = ""
    replaces: str = ""
    driver: str = ""
    payload: str = ""
    chosen: bool = False
    confidence: str = ""
    component: str = ""
    files: tuple[tuple[str, str], ...] = ()

    @property
    def relations(self) -> dict[str, str]:
        """Return the relations that there are, by the names of a control file's fields."""
        return {field: getattr(self, name) for name, field in FIELDS.items() if getattr(self, name)}

    def stanza(self) -> str:
        """Return its stanza of an index, as far as apt resolves by it: nothing can be fetched from there."""
        lines = {"Package": self.name, "Version": self.version, "Architecture": self.architecture, **self.relations}
        lines |= {"Filename": f"./{self.name}_{self.version}.deb", "Size": "1", "SHA256": "0" * 64}
        return "".join(f"{key}: {value}\n" for key, value in lines.items())


@cache
def _table() -> dict[str, Any]:
    text = resources.files(__package__).joinpath("apt_driver.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def repositories() -> tuple[str, ...]:
    """Return the names of the repositories: debian12, ubuntu2404 …"""
    return tuple(_table()["repositories"])


def driver_versions(repository: str) -> tuple[str, ...]:
    """Return the versions of the driver that a repository has, oldest first."""
    return tuple(_table()["repositories"][repository]["versions"])


def distribution_packages(repository: str) -> tuple[Package, ...]:
    """Return what the distribution itself has of what decides whether the driver can be installed; none: not known."""
    found = _table()["distributions"].get(repository, {})
    return tuple(Package(name, version, "all", confidence="measured") for name, version in found.items())


def archive_packages(suite: str, versions: Mapping[str, str], opened: Collection[str]) -> tuple[Package, ...]:
    """Return what Debian's archive has of a driver, each version of it beside the others.

    + suite: bookworm or trixie, whose numbers those packages have that are numbered on their own
    + versions: version of the driver -> its revision
    + opened: those of which there are open kernel modules: they are of another source package, and come later or never
    """
    said = _table()["archives"]
    found: dict[tuple[str, str], Package] = {}
    for version, revision in versions.items():
        for name, entry in said["packages"].items():
            if entry.get("of") == "open" and version not in opened:
                continue
            apart = said["suites"][suite][entry["apart"]] if "apart" in entry else ""
            values = {"{V}": f"{version}{revision}", "{U}": version, "{A}": apart}
            package = Package(
                name, apart or values["{V}"], "all" if entry.get("all") else "amd64",
                driver=version, payload=entry.get("payload", ""), confidence=said["confidence"],
                component=entry["component"],
            )  # fmt: skip
            relations = {key: _filled(entry[key], values) for key in FIELDS if key in entry}
            found[package.name, package.version] = replace(package, **relations)  # type: ignore[arg-type]
    return tuple(found.values())


def release_fields() -> dict[str, str]:
    """Return the fields of a Release file that tell NVIDIA's CUDA repositories from others."""
    return {key: _table()["release"][key] for key in ("Origin", "Label")}


@cache
def driver_packages(repository: str) -> tuple[Package, ...]:
    """Return everything of the driver's that a repository has, with what stands beside it: pinning, dkms, nvlsm."""
    row = _table()["repositories"][repository]
    found = [package for version in row["versions"] for package in _of_version(repository, version)]
    for branch, revisions in row["branch_pinning"].items():
        found += [_pinning(repository, str(branch), revision) for revision in revisions]
    for name, said in row["beside"].items():
        sure = "index" if said["seen"] == repository else "inferred"
        found.append(Package(name, said["version"], chosen=True, confidence=sure))
    if "dkms" in row:
        said = row["dkms"]
        found.append(Package("dkms", said["version"], "all", confidence=said["confidence"]))
    # What is numbered apart comes with several versions of the driver.
    return tuple({(package.name, package.version): package for package in reversed(found)}.values())[::-1]


def _of_version(repository: str, version: str) -> Iterator[Package]:
    row = _table()["repositories"][repository]
    branch, said = int(version.split(".")[0]), row["versions"][version]
    here = repository in ([said["seen"]] if isinstance(said["seen"], str) else said["seen"])
    layout = _table()["layouts"][row["layouts"][max(key for key in row["layouts"] if key <= branch)]]
    full = f"{version}{said['revision']}"
    dkms = layout.get("dkms", {0: ""})
    values = {"{V}": full, "{U}": version, "{B}": str(branch), "{D}": dkms[max(key for key in dkms if key <= branch)],
              "{F}": f"{version}{said.get('fabric', said['revision'])}"}  # fmt: skip
    known = {field.name for field in fields(Package)}
    for name, entry in layout["packages"].items():
        if not entry.get("from", branch) <= branch <= entry.get("to", branch):
            continue
        if version not in entry.get("only", [version]):
            continue
        apart = set(entry) - known - {"from", "to", "only", "all"}
        assert not apart, f"{name}: the table has {sorted(apart)}, which nothing reads"
        numbered = entry.get("version", "{V}")
        # What is numbered apart from the driver was not recorded by the driver's version.
        sure = here or "{" not in numbered
        package = Package(
            _filled(name, values), _filled(numbered, values), "all" if entry.get("all") else "amd64",
            driver=version, payload=entry.get("payload", ""), chosen=entry.get("chosen", False),
            confidence=entry.get("confidence", layout["confidence"]) if sure else "inferred",
        )  # fmt: skip
        relations = {key: _filled(str(entry[key]), values) for key in FIELDS if key in entry}
        yield replace(package, **relations)  # type: ignore[arg-type]
    if "pinning" in said:
        yield _pinning(repository, version, f"{version}{said['pinning']}")


def _pinning(repository: str, rule: str, version: str) -> Package:
    said = _table()["pinning"]
    # The groups that its stanzas really name are not known; these are all that is the driver's there.
    text = f"Package: {' '.join(GLOBS)}\nPin: version {rule}{'.*' if rule.isdigit() else '-*'}\n"
    only = said["provides"]
    return Package(
        f"nvidia-driver-pinning-{rule}", version, "all", provides=only, conflicts=only, replaces=only, chosen=True,
        confidence=said["confidence"] if version in said["seen"].get(repository, ()) else "inferred",
        files=((said["file"], f"{text}Pin-Priority: {said['priority']}\n"),),
    )  # fmt: skip


def _filled(text: str, values: Mapping[str, str]) -> str:
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    return text
