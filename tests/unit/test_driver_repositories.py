"""Every set of packages of NVIDIA's that is asked for comes, by a real apt, from repositories as the real ones are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpunode.base import tables, versions
from gpunode.lab.world import apt as world
from gpunode.packages.driver_packages.choice import NotInstallable, chosen, come_along, pin_text
from gpunode.packages.driver_packages.names import belongs, driver_branch, is_fabric_manager
from gpunode.packages.driver_packages.simulation import Simulation, gate, left_behind
from gpunode.packages.driver_packages.sources import package_set
from gpunode.settings.driver import DriverSettings
from gpunode.system.boot import Boot
from tests.real.resolve_apt import Apt, Resolved

pytestmark = [pytest.mark.real, pytest.mark.tier2]
NO_KERNEL = Boot(running="6.1.0-40-amd64")


class Repository:
    """NVIDIA's repository of a distribution, by its table, and apt that reads it; nothing is installed at first."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.source = tables.driver_source("cuda-repository", name.rstrip("0123456789"))
        assert self.source is not None
        index = folder / "repository"
        index.mkdir(parents=True)
        rows = (*world.driver_packages(name), *world.distribution_packages(name))
        (index / "Packages").write_text("\n".join(row.stanza() for row in rows))
        self.apt = Apt(folder / "apt", f"deb [trusted=yes] file:{index} ./\n")
        assert self.apt.update() == ()

    def empty(self) -> None:
        """Take everything away that was installed."""
        (self.folder / "apt/var/lib/dpkg/status").write_text("")

    def choose(self, flavour: str, rule: str, *further: str) -> tuple[dict[str, str], str]:
        """Return which version of each package the driver is, and its upstream version."""
        asked = DriverSettings.model_validate({"version" if "." in rule else "branch": rule})
        assert self.source is not None
        wanted = package_set(asked, self.source, flavour, further, NO_KERNEL)
        offers = [(name, version) for name, found in self.apt.offers(*wanted).items() for version in found]
        resolved = chosen(wanted, {}, offers)
        return resolved, next(versions.upstream(resolved[name]) for name, bound in wanted.items() if bound)

    def simulate(self, upstream: str, *arguments: str) -> Resolved:
        """Return what apt would do with the preferences of the driver's transaction; without any for no version."""
        (self.folder / "apt/etc/apt/preferences").write_text(pin_text(upstream) if upstream else "")
        return self.apt.resolve(*arguments)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Repository]]:
    made: dict[str, Repository] = {}

    def of(name: str) -> Repository:
        if name not in made:
            made[name] = Repository(name, tmp_path_factory.mktemp(name))
        made[name].empty()
        return made[name]

    yield of


def _flavours(branch: int) -> tuple[str, ...]:
    # nvidia-open is there since 560.
    return ("open", "proprietary") if branch >= 560 else ("proprietary",)


def _asked(name: str, each: bool) -> list[tuple[str, str, str]]:
    """Return (repository, flavour, rule) of every branch, and of each version where that is asked."""
    by_branch: dict[str, list[str]] = {}
    for version in world.driver_versions(name):
        by_branch.setdefault(version.split(".")[0], []).append(version)
    rules = [rule for branch, found in by_branch.items() for rule in (branch, *(found if each else found[:1]))]
    return [(name, flavour, rule) for rule in rules for flavour in _flavours(int(rule[:3]))]


SOME = [row for name in ("debian12", "ubuntu2404") for row in _asked(name, each=False)]


def _comes_whole(of: Repository, flavour: str, rule: str) -> None:
    fabric: tuple[str, ...] = ("nvswitch", "nvlink5", "imex") if int(rule[:3]) >= 570 else ("nvswitch",)
    rows = [row.name for row in world.driver_packages(of.name) if row.driver == rule]
    if rows and not any(map(is_fabric_manager, rows)):
        fabric = ()
    resolved, upstream = of.choose(flavour, rule, *fabric)
    found = of.simulate(upstream, *(f"{name}={version}" for name, version in resolved.items()))
    assert found.possible, found.errors
    assert {name: found.installed[name] for name in resolved} == resolved
    numbered = {name: version for name, version in found.installed.items() if driver_branch(version)}
    assert len(numbered) > 15
    assert {versions.upstream(version) for version in numbered.values()} == {upstream}
    assert not [name for name in numbered if not belongs(name)]
    came = Simulation(tuple((name, None, version) for name, version in found.installed.items()), ())
    unbound = [name for name, bound in resolved.items() if driver_branch(bound) is None]
    assert gate(came, resolved, rule[:3], False, unbound=unbound, upstream=upstream) is None


@pytest.mark.parametrize(("name", "flavour", "rule"), SOME, ids=["-".join(row) for row in SOME])
def test_a_driver_comes_whole_and_at_one_version(
    repository: Callable[[str], Repository], name: str, flavour: str, rule: str
) -> None:
    _comes_whole(repository(name), flavour, rule)


@pytest.mark.tier3
@pytest.mark.parametrize("name", world.repositories())
def test_every_driver_of_every_repository_comes_whole(repository: Callable[[str], Repository], name: str) -> None:
    for _, flavour, rule in _asked(name, each=True):
        _comes_whole(repository(name), flavour, rule)


def test_the_pin_of_the_transaction_keeps_a_metapackage_from_the_newest(
    repository: Callable[[str], Repository],
) -> None:
    of = repository("ubuntu2404")
    resolved, upstream = of.choose("open", "590.48.01")
    arguments = [f"{name}={version}" for name, version in resolved.items()]
    # nvidia-open depends on 590.48.01 or newer: what apt does by itself.
    assert of.simulate("", *arguments).installed["nvidia-driver-open"].startswith("615.71.09")
    assert of.simulate(upstream, *arguments).installed["nvidia-driver-open"].startswith("590.48.01")


def test_dkms_comes_from_nvidia_s_repository_where_the_distribution_s_is_too_old(
    repository: Callable[[str], Repository],
) -> None:
    of = repository("debian12")
    resolved, upstream = of.choose("open", "580.105.08")
    found = of.simulate(upstream, *(f"{name}={version}" for name, version in resolved.items()))
    assert found.installed["dkms"].startswith("1:")


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("ubuntu2404", "580.95.05", "610.57.04"),
        ("ubuntu2404", "575.57.08", "580.178.04"),
        ("debian12", "570.172.08", "580.178.04"),
        ("debian12", "580.178.04", "595.71.05"),
    ],
)
def test_nothing_of_the_branch_before_stays_beside_another_branch(
    repository: Callable[[str], Repository], name: str, before: str, after: str
) -> None:
    of = repository(name)
    resolved, upstream = of.choose("open", before, "nvswitch")
    before_it = [f"{package}={version}" for package, version in resolved.items()]
    assert of.simulate(upstream, *before_it).possible
    there = of.apt.install(*before_it, "nvidia-settings").installed
    resolved, upstream = of.choose("open", after, "nvswitch")
    others = {package: version for package, version in there.items() if belongs(package) and package not in resolved}
    found = _changed(of.apt, resolved, others, upstream)
    assert found.possible, found.errors
    left = {package: there[package] for package in there if package not in {*found.installed, *found.removed}}
    assert not [package for package in left if belongs(package)]
    assert found.installed["nvidia-settings"].startswith(after)


def _changed(
    apt: Apt, resolved: dict[str, str], others: dict[str, str], upstream: str, moved: bool = False
) -> Resolved:
    """Return what a change does, which names of the others only what goes, and what would be left behind."""
    (apt.folder / "etc/apt/preferences").write_text(pin_text(upstream))
    offers = [(package, version) for package, found in apt.offers(*others).items() for version in found]
    along = come_along(others, offers, upstream, upstream.split(".")[0], moved=moved, clash=True)
    named = [f"{package}={version}" for package, version in resolved.items()]
    named += [f"{package}-" for package, version in along.items() if version is None]
    first = apt.resolve(*named)
    assert first.possible, first.errors
    told = Simulation(
        tuple((name, None, version) for name, version in first.installed.items()),
        tuple((name, "") for name in first.removed),
    )
    late = left_behind({package: version for package, version in along.items() if version}, told)
    return apt.resolve(*named, *(f"{package}={version}" for package, version in late.items()))


def test_debian_s_own_driver_gives_way_to_nvidia_s_and_comes_back(tmp_path: Path) -> None:
    rows = {
        "nvidia": (*world.driver_packages("debian12"), *world.distribution_packages("debian12")),
        "debian": world.archive_packages("bookworm", {"535.261.03": "-1"}, ["535.261.03"]),
    }
    for name, found in rows.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "Packages").write_text("\n".join(row.stanza() for row in found))
    both = "".join(f"deb [trusted=yes] file:{tmp_path / name} ./\n" for name in rows)
    archive = Apt(tmp_path / "archive", f"deb [trusted=yes] file:{tmp_path / 'debian'} ./\n")
    archive.update()
    source = tables.driver_source("distribution", "debian")
    assert source is not None
    asked = DriverSettings.model_validate({"source": "distribution", "version": "535.261.03"})
    wanted = package_set(asked, source, "open", (), NO_KERNEL)
    offers = [(name, version) for name, found in archive.offers(*wanted).items() for version in found]
    debian = chosen(wanted, {}, offers)
    there = archive.install(*(f"{name}={version}" for name, version in debian.items())).installed
    apt = Apt(tmp_path / "both", both, status=archive.status_of(there.items()))
    apt.update()
    others = {name: version for name, version in there.items() if belongs(name)}
    moved = _changed(apt, {"nvidia-open": "580.105.08-1"}, others, "580.105.08", moved=True)
    assert moved.possible, moved.errors
    # NVIDIA's nvidia-smi is an empty package, which nvidia-driver-cuda does not suffer beside itself.
    assert {"nvidia-smi", "nvidia-alternative", "nvidia-open-kernel-dkms"} <= set(moved.removed)
    now = {name: version for name, version in (there | moved.installed).items() if name not in moved.removed}
    assert {driver_branch(version) for name, version in now.items() if belongs(name)} <= {"580", None}
    back = Apt(
        tmp_path / "back", f"deb [trusted=yes] file:{tmp_path / 'debian'} ./\n", status=apt.status_of(now.items())
    )
    back.update()
    others = {name: version for name, version in now.items() if belongs(name) and name not in {*debian, *source.apart}}
    returned = _changed(back, debian, others, "535.261.03", moved=True)
    assert returned.possible, returned.errors
    now = {name: version for name, version in (now | returned.installed).items() if name not in returned.removed}
    numbered = {name: version for name, version in now.items() if belongs(name) and name not in source.apart}
    assert {driver_branch(version) for version in numbered.values()} <= {"535", None}


def test_every_name_of_the_driver_s_is_held_and_saved() -> None:
    named = {row.name for name in world.repositories() for row in world.driver_packages(name) if row.driver}
    assert len(named) > 100
    assert sorted(name for name in named if not belongs(name)) == []
    foreign = ("dkms", "nvidia-container-toolkit", "libnvidia-container1", "cuda-compat-13-2")
    assert not any(belongs(name) for name in foreign)


def test_open_before_560_is_not_to_be_had_on_debian(repository: Callable[[str], Repository]) -> None:
    with pytest.raises(NotInstallable, match=r"nvidia-open is not to be had at 550"):
        repository("debian12").choose("open", "550")
