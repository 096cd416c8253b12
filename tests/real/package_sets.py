"""The sets of packages that gpunode would ask a package manager for, by distribution and repository.

They are made by gpunode's own code; which branches and versions there are is asked of the repositories.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gpunode.base import tables, versions
from gpunode.base.tables.sources import Distribution, DriverSource
from gpunode.components.runtimes.containerd.decide import PACKAGES as CONTAINERD
from gpunode.components.runtimes.packages import docker_packages, is_had
from gpunode.components.runtimes.toolkit.state import PACKAGES, PACMAN_PACKAGES
from gpunode.packages.driver_packages.choice import NotInstallable, chosen
from gpunode.packages.driver_packages.simulation import Simulation, gate
from gpunode.packages.driver_packages.sources import driver_source, module_stream, package_set, resolve_for_os
from gpunode.settings import Settings, settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.operating_system import OperatingSystem

# The kernel that boots next, by the package manager: SUSE names modules that come built by its last word, Arch by the
# package that it is of. Of apt none: Ubuntu's modules are asked for by a kernel's release, which is a node's own.
_BOOT = {
    "apt": Boot("0-none"),
    "dnf": Boot("5.14.0-570.el9.x86_64", "5.14.0-570.el9.x86_64"),
    "dnf5": Boot("6.17.4-200.fc42.x86_64", "6.17.4-200.fc42.x86_64"),
    "zypper": Boot("6.4.0-150600.23.65-default", "6.4.0-150600.23.65-default"),
    "pacman": Boot("6.17.9-arch1-1", "6.17.9-arch1-1", kernels=(Kernel("6.17.9-arch1-1", True, base="linux"),)),
}
_OWN: tuple[tuple[str, ...], ...] = ((), ("mps",))
# What boards need beside the driver -> the first branch that is asked for with them.
BOARDS: Mapping[tuple[str, ...], str] = {
    (): "0", ("nvswitch",): "0", ("nvswitch", "nvlink5"): "570", ("imex",): "570",
}  # fmt: skip
# Arch has open modules alone since 590 (archlinux.org/news of 2025-12-20).
_LAST_PROPRIETARY = {"pacman": "580"}
# Whose runtimes the settings call by another name.
_RUNTIMES_OF = {"own": "distribution", "docker": "docker-repository"}


@dataclass(frozen=True)
class Asked:
    """Hold one set: what it is for, package -> version rule (None: any), and for a driver its source and settings.

    stream: the module stream that holds the driver, empty for none
    """

    what: str
    desired: Mapping[str, str | None]
    driver: Settings | None = None
    stream: str = ""


class Manager(Protocol):
    """A package manager that has read repositories, on a system that has nothing."""

    def offers(self, *names: str) -> Mapping[str, tuple[str, ...]]:
        """Return name -> versions that the repositories have, newest first; none: no entry."""

    def problems(self, asked: Sequence[Asked]) -> list[str | None]:
        """Return of each set why it cannot be installed, or what gpunode would refuse of it; None where it comes."""


def system(row: Distribution, architecture: str) -> OperatingSystem:
    """Return a machine of a distribution, as far as packages are chosen by it; architecture as `uname -m` has it."""
    return OperatingSystem(row.id, row.version, None, (), row.name, architecture, "0-none", False)


def driver_sets(row: Distribution, source: str, manager: Manager) -> Iterator[Asked]:
    """Yield the driver's sets from a source (cuda-repository, distribution): each branch there, flavour and board.

    Each branch is asked for by its name, and by the newest exact version that is there of it.
    """
    for branch in branches(row, manager) if source != "distribution" else own_branches(row, manager):
        for flavour in ("open", "proprietary"):
            asked = _settings(row, source, flavour, branch)
            found = _source(row, asked)
            if not _expected(asked, flavour, found):
                continue
            sets = (
                _OWN if source == "distribution" else [each for each, since in BOARDS.items() if str(branch) >= since]
            )
            for further in (groups for groups in sets if all(group in found.packages for group in groups)):
                by_branch = driver_set(row, source, branch, flavour, further)
                yield by_branch
                exact = newest_exact(manager, by_branch.desired)
                # Of a rolling release there is one version, and none that anybody asks for.
                if exact is not None and row.family != "pacman":
                    yield driver_set(row, source, exact, flavour, further)


def driver_set(
    row: Distribution, source: str, rule: str | None, flavour: str, further: Sequence[str] = ()
) -> Asked:  # fmt: skip
    """Return the driver's set by a rule: a branch, an exact version, or None for what the tables say of the system."""
    asked = _settings(row, source, flavour, rule)
    found = _source(row, asked)
    wanted = package_set(asked.driver, found, flavour, further, _BOOT[row.family])
    what = " ".join((f"driver {asked.driver.version or asked.driver.branch} {flavour}", *further))
    return Asked(what, wanted, asked, module_stream(asked.driver, found, flavour))


def _settings(row: Distribution, source: str, flavour: str, rule: str | None) -> Settings:
    data = {"source": source, "flavour": flavour}
    if rule is not None:
        data |= {"branch": versions.branch_of(rule)} | ({"version": rule} if "." in rule else {})
    return resolve_for_os(settings_from({"driver": data}), system(row, "x86_64"))


def _source(row: Distribution, asked: Settings) -> DriverSource:
    found = driver_source(asked, system(row, "x86_64"), _BOOT[row.family])
    assert found is not None, row.name
    return found


def _expected(asked: Settings, flavour: str, source: DriverSource) -> bool:
    """Say whether a source is to have a flavour of a branch: NVIDIA's proprietary one ends, and open ones begin."""
    assert asked.driver.branch is not None
    branch = versions.parsed(asked.driver.branch)
    last = _LAST_PROPRIETARY.get(source.family, tables.drivers().last_proprietary)
    if flavour == "proprietary" and branch > versions.parsed(last):
        return False
    return branch >= versions.parsed(source.flavour_since.get(flavour, "0"))


def own_branches(row: Distribution, manager: Manager) -> Sequence[str | None]:
    """Return the branches of a distribution's own driver: None for the tables' own, of Arch the one that it has."""
    if row.family != "pacman":
        return [None]
    there = manager.offers("nvidia-utils").get("nvidia-utils", ())
    return [branch_of(version) for version in there]


def branches(row: Distribution, manager: Manager) -> tuple[str, ...]:
    """Return the driver's branches from 535 on that NVIDIA's repository has packages of, newest first.

    They are told by the packages of its kernel modules, under the names of each branch that the tables know.
    """
    names = {
        name
        for branch in tables.drivers().branches
        for flavour in ("open", "proprietary")
        for name in _leading(row, flavour, branch)
    }
    there = {version for found in manager.offers(*sorted(names)).values() for version in found}
    found = {branch_of(version) for version in there}
    return tuple(sorted((branch for branch in found if branch >= "535"), reverse=True))


def branch_of(version: str) -> str:
    """Return the branch of a package's version."""
    return versions.branch_of(versions.upstream(version))


def _leading(row: Distribution, flavour: str, branch: str) -> Iterable[str]:
    """Return the packages of a flavour that the other one has not."""
    both = [driver_set(row, "cuda-repository", branch, each).desired.keys() for each in ("open", "proprietary")]
    return both[flavour == "proprietary"] - both[flavour != "proprietary"]


def newest_exact(manager: Manager, wanted: Mapping[str, str | None]) -> str | None:
    """Return the newest upstream version at which all of a set are there; None where there is none."""
    try:
        resolved = chosen(wanted, {}, pairs(manager.offers(*wanted)))
    except NotInstallable:
        return None
    return next((versions.upstream(resolved[name]) for name, rule in wanted.items() if rule), None)


def pairs(offers: Mapping[str, Iterable[str]]) -> list[tuple[str, str]]:
    """Return (name, version) of offers, each name's newest first."""
    return [(name, version) for name, found in offers.items() for version in found]


def other_sets(row: Distribution, repository: str, manager: Manager) -> Iterator[Asked]:
    """Yield the sets of a repository (own, cuda, toolkit, docker) that are no driver's."""
    if repository in _RUNTIMES_OF:
        source = _RUNTIMES_OF[repository]
        asked = settings_from({runtime: {"enabled": True, "source": source} for runtime in ("containerd", "docker")})
        for runtime, names in (
            ("containerd", CONTAINERD[asked.containerd.source]),
            ("docker", docker_packages(asked.docker.source, row)),
        ):
            if is_had(runtime, source, row):
                yield Asked(" ".join(names), dict.fromkeys(names))
    # Where NVIDIA has no repository for a distribution, all is in its own.
    own = repository == "own" and row.repository is None
    if repository == "toolkit" or own:
        packages = PACMAN_PACKAGES if own else PACKAGES
        yield Asked("container toolkit", dict.fromkeys(packages))
        for version in () if own else _versions_of_all(manager, packages)[:3]:
            yield Asked(f"container toolkit {version}", dict.fromkeys(packages, version))
    if own:
        yield Asked("CUDA", {"cuda": None})
    if repository == "cuda":
        default = resolve_for_os(settings_from({}), system(row, "x86_64")).cuda.version
        named = {f"cuda-toolkit-{version.replace('.', '-')}": version for version in (default, *tables.cuda().versions)}
        there = manager.offers(*named)
        for name, version in named.items():
            if version == default or name in there:
                yield Asked(f"CUDA {version}", {name: None})


def _versions_of_all(manager: Manager, names: Sequence[str]) -> list[str]:
    offers = manager.offers(*names)
    found = [{versions.upstream(each) for each in offers.get(name, ())} for name in names]
    return sorted(set.intersection(*found), key=versions.parsed, reverse=True)


def refused(asked: Asked, row: Distribution, comes: Simulation, resolved: Mapping[str, str]) -> str | None:
    """Return what gpunode would refuse of what a package manager would do (resolved: name -> version chosen)."""
    if asked.driver is None:
        gone = ", ".join(name for name, _ in comes.goes)
        return f"{gone} would be removed" if gone else None
    source = _source(row, asked.driver)
    unbound = [*(name for name, rule in asked.desired.items() if rule is None), *source.apart]
    found = gate(
        comes, resolved, asked.driver.driver.branch or "", False, unbound=unbound, built=source.built_on_node,
        upstream=upstream_of(asked, resolved) if source.moves_together else None,
    )  # fmt: skip
    return f"gpunode refuses: {found[0]}" if found else None


def upstream_of(asked: Asked, resolved: Mapping[str, str]) -> str:
    """Return the one upstream version of the packages with a rule; empty for what is no driver."""
    bound = [name for name, rule in asked.desired.items() if rule] if asked.driver else []
    return versions.upstream(resolved[bound[0]]) if bound else ""
