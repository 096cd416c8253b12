"""The sets of packages that gpunode would ask an apt for, by distribution and repository: made by gpunode's code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpunode import tables, versions
from gpunode.boot import Boot
from gpunode.driver_packages import (
    NotInstallable,
    Simulation,
    chosen,
    driver_source,
    gate,
    module_behind,
    on_system,
    package_set,
    pin_text,
)
from gpunode.operating_system import OperatingSystem
from gpunode.runtime_packages import containerd_packages, docker_packages
from gpunode.settings import Settings, settings_from
from gpunode.tables import Distribution
from gpunode.toolkit import PACKAGES as TOOLKIT
from tests.real.resolve_apt import Apt

# A node whose next kernel is not looked at: what is built per kernel is asked for by its release, which is a node's.
_NO_KERNEL = Boot("0-none")
_OWN: tuple[tuple[str, ...], ...] = ((), ("mps",))
_FABRIC: tuple[tuple[str, ...], ...] = ((), ("nvswitch",), ("nvswitch", "nvlink5"), ("imex",))
# Whose runtimes the settings call by another name.
_RUNTIMES_OF = {"own": "distribution", "docker": "docker-repository"}


@dataclass(frozen=True)
class Asked:
    """Hold one set: what it is for, package -> version rule (None: any), and for a driver its source and settings."""

    what: str
    wanted: Mapping[str, str | None]
    driver: Settings | None = None


def system(row: Distribution, architecture: str) -> OperatingSystem:
    """Return a machine of a distribution, as far as packages are chosen by it; architecture as `uname -m` has it."""
    return OperatingSystem(row.id, row.version, None, (), row.name, architecture, "0-none", False)


def driver_sets(row: Distribution, source: str, apt: Apt) -> Iterator[Asked]:
    """Yield the driver's sets from a source (cuda-repository, distribution): each branch there, flavour and fabric.

    Each branch is asked for by its name, and by the newest exact version that is there of it.
    """
    machine = system(row, "x86_64")
    named = [None] if source == "distribution" else [*reversed(branches(apt))]
    for branch in named:
        for flavour in ("open", "proprietary"):
            if branch is not None and not _expected(branch, flavour, apt):
                continue
            data: dict[str, str] = {"source": source, "flavour": flavour}
            asked = on_system(settings_from({"driver": data | ({"branch": branch} if branch else {})}), machine)
            row_of = driver_source(asked, machine)
            assert row_of is not None and asked.driver.branch is not None
            sets = _OWN if source == "distribution" else _FABRIC
            for further in (groups for groups in sets if all(group in row_of.packages for group in groups)):
                wanted = package_set(asked.driver, row_of, flavour, further, _NO_KERNEL)
                what = " ".join((f"driver {asked.driver.branch} {flavour}", *further))
                yield Asked(what, wanted, asked)
                exact = newest_exact(apt, wanted)
                if exact is not None:
                    changed = asked.driver.model_copy(update={"version": exact})
                    exactly = asked.model_copy(update={"driver": changed})
                    yield Asked(
                        what.replace(str(asked.driver.branch), exact, 1),
                        package_set(changed, row_of, flavour, further, _NO_KERNEL),
                        exactly,
                    )


def _expected(branch: str, flavour: str, apt: Apt) -> bool:
    """Say whether NVIDIA's repository is to have a flavour of a branch: proprietary ends, and open began at 560."""
    if flavour == "proprietary":
        return versions.parsed(branch) <= versions.parsed(tables.drivers().last_proprietary)
    return any(versions.in_branch(each, branch) for each in apt.offers("nvidia-open").get("nvidia-open", ()))


def branches(apt: Apt) -> tuple[str, ...]:
    """Return the driver's branches from 535 on that NVIDIA's repository has packages of, oldest first."""
    there = {version for found in apt.offers("nvidia-open", "cuda-drivers").values() for version in found}
    found = {versions.branch_of(versions.upstream(version)) for version in there}
    return tuple(sorted(branch for branch in found if branch >= "535"))


def newest_exact(apt: Apt, wanted: Mapping[str, str | None]) -> str | None:
    """Return the newest upstream version at which all of a set are there; None where there is none."""
    offers = [(name, version) for name, found in apt.offers(*wanted).items() for version in found]
    try:
        resolved = chosen(wanted, {}, offers)
    except NotInstallable:
        return None
    return next((versions.upstream(resolved[name]) for name, rule in wanted.items() if rule), None)


def other_sets(row: Distribution, repository: str, apt: Apt) -> Iterator[Asked]:
    """Yield the sets of a repository (own, cuda, toolkit, docker) that are no driver's."""
    if repository in _RUNTIMES_OF:
        data = {"enabled": True, "source": _RUNTIMES_OF[repository]}
        asked = settings_from({"containerd": data, "docker": data})
        for names in (containerd_packages(asked.containerd), docker_packages(asked.docker, row)):
            yield Asked(" ".join(names), dict.fromkeys(names))
    if repository == "toolkit":
        yield Asked("container toolkit", dict.fromkeys(TOOLKIT))
        for version in _versions_of_all(apt, TOOLKIT)[:3]:
            yield Asked(f"container toolkit {version}", dict.fromkeys(TOOLKIT, version))
    if repository == "cuda":
        default = on_system(settings_from({}), system(row, "x86_64")).cuda.version
        for version in dict.fromkeys((default, *tables.cuda().versions)):
            name = f"cuda-toolkit-{version.replace('.', '-')}"
            if version == default or apt.offers(name):
                yield Asked(f"CUDA {version}", {name: None})


def _versions_of_all(apt: Apt, names: tuple[str, ...]) -> list[str]:
    found = [{versions.upstream(each) for each in apt.offers(name).get(name, ())} for name in names]
    return sorted(set.intersection(*found), key=versions.parsed, reverse=True)


def problem_of(asked: Asked, apt: Apt, row: Distribution) -> str | None:
    """Return why a set cannot be installed, or what gpunode would refuse of it; None where it resolves."""
    offers = [(name, version) for name, found in apt.offers(*asked.wanted).items() for version in found]
    try:
        resolved = chosen(asked.wanted, {}, offers)
    except NotInstallable as error:
        return str(error)
    bound = [name for name, rule in asked.wanted.items() if rule]
    upstream = versions.upstream(resolved[bound[0]]) if bound and asked.driver else None
    apt.prefer(pin_text(upstream) if upstream else "")
    found = apt.resolve(*(f"{name}={version}" for name, version in resolved.items()))
    apt.prefer("")
    if not found.possible:
        return f"apt refuses: {' '.join(found.errors.split())[-400:]}"
    moved = {name for name, version in resolved.items() if found.installed.get(name) != version}
    if moved:
        return f"{', '.join(sorted(moved))} would come at another version than was chosen"
    if asked.driver is None:
        return f"{', '.join(found.removed)} would be removed" if found.removed else None
    source = driver_source(asked.driver, system(row, "x86_64"))
    assert source is not None and asked.driver.driver.branch is not None
    behind = module_behind(source, asked.wanted, offers)
    if behind is not None:
        return behind.reason(source)
    comes = Simulation(tuple((name, None, version) for name, version in found.installed.items()),
                       tuple((name, "") for name in found.removed))  # fmt: skip
    unbound = [*(name for name, rule in asked.wanted.items() if rule is None), *source.apart]
    refused = gate(
        comes, resolved, asked.driver.driver.branch, False, unbound=unbound, built=source.built_on_node,
        upstream=upstream if source.moves_together else None,
    )  # fmt: skip
    return f"gpunode refuses: {refused[0]}" if refused else None
