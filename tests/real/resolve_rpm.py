"""What dnf, dnf 5 or zypper would do with given repositories: the real one, in a root of its own, installing nothing.

It is asked by gpunode's own probes, and what it answers is read by gpunode's own parsers: what the repositories offer,
which one version all packages have, and what would come. The root is a filesystem that has the package manager; it runs
in a throwaway container, so that nothing of this machine is read or changed. The same code resolves live repositories
(`network`) and metadata in a folder.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpunode.base import versions
from gpunode.facts.families.dnf import DnfOffers, DnfSimulation
from gpunode.facts.families.dnf5 import Dnf5Offers, Dnf5Simulation
from gpunode.facts.families.zypper import ZypperOffers, ZypperSimulation
from gpunode.packages.driver_packages.choice import NotInstallable, Offers, chosen
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families import dnf, dnf5, zypper
from tests.real.asking import ask


@dataclass(frozen=True)
class PackageSet:
    """Hold what is asked for: name -> branch, upstream version or None (any), and the module stream, empty for none."""

    packages: Mapping[str, str | None]
    stream: str = ""


@dataclass(frozen=True)
class Resolved:
    """Hold name -> version of all that would come, and names that would go; or the manager's words where it refuses."""

    installed: Mapping[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def possible(self) -> bool:
        """Say whether it can be done."""
        return not self.errors


class RpmManager:
    """One dnf, dnf 5 or zypper with its repositories.

    + root: a root filesystem that has it (lab.image.tools, or any other)
    + work: a folder of its own, which the manager sees as /work; what it has read of repositories stays there
    + repositories: the texts of .repo files, each of one repository (`plain`, or the product's own)
    + platform: the module platform of a modular system (`platform:el9`), empty for none
    + network: whether the repositories are elsewhere
    """

    def __init__(
        self, manager: str, root: Path, work: Path, repositories: Sequence[str], *, platform: str = "",
        release: str = "9", network: bool = False,
    ) -> None:  # fmt: skip
        """Hold what is to be asked; nothing runs yet."""
        self.manager, self.root, self.work, self.network = manager, root, work, network
        self._setup = _SETUPS[manager]
        self._platform, self._release = platform, release
        self._repositories = repositories
        self._offers: dict[str, tuple[str, ...]] = {}

    def offers(self, *names: str) -> dict[str, tuple[str, ...]]:
        """Return name -> versions, newest first, as the repositories have them, whatever the module stream."""
        if unknown := [name for name in names if name not in self._offers]:
            (lines,) = self._ask([_asked(self.manager, unknown)], every_stream=True)
            found = _OFFERS[self.manager](lines)
            self._offers |= {
                name: tuple(version for each, version in found.available if each == name) for name in unknown
            }
        return {name: self._offers[name] for name in names if self._offers[name]}

    def resolve(self, sets: Sequence[PackageSet]) -> list[Resolved]:
        """Return what would come of each set, each by itself on a system that has nothing."""
        offers = self._ask([_offers(self.manager, each) for each in sets])
        found: list[Resolved | dict[str, str]] = []
        for asked, lines in zip(sets, offers, strict=True):
            found.append(_chosen(asked, _OFFERS[self.manager](lines)))
        going = [number for number, each in enumerate(found) if isinstance(each, dict)]
        simulations = self._bound([sets[number] for number in going], [_picked(found[number]) for number in going])
        for number, simulation in zip(going, simulations, strict=True):
            found[number] = _resolved(simulation, _picked(found[number]))
        return [each for each in found if isinstance(each, Resolved)]

    def _bound(self, sets: Sequence[PackageSet], picked: Sequence[dict[str, str]]) -> list[Simulation]:
        """Return what the manager would do, as operations/driver_packages.py asks for it."""
        for _ in range(zypper.ROUNDS):
            answers = self._ask([_simulation(self.manager, each, one) for each, one in zip(sets, picked, strict=True)])
            if self.manager != "zypper":
                return [_READ[self.manager].parse_simulation(lines) for lines in answers]
            simulations = [zypper.parse_simulation(lines) for lines in answers]
            if not self._named_too(sets, picked, simulations):
                break
        return [zypper.only_at(_upstream(each, one), simulation)
                for each, one, simulation in zip(sets, picked, simulations, strict=True)]  # fmt: skip

    def _named_too(
        self, sets: Sequence[PackageSet], picked: Sequence[dict[str, str]], simulations: Sequence[Simulation]
    ) -> bool:
        """Add to `picked` what zypper would bring at other versions; say whether there was any."""
        upstreams = [_upstream(each, one) for each, one in zip(sets, picked, strict=True)]
        strays = [set(zypper.strays(upstream, simulation)) - set(one)
                  for upstream, simulation, one in zip(upstreams, simulations, picked, strict=True)]  # fmt: skip
        names = sorted(set().union(*strays))
        if not names:
            return False
        (lines,) = self._ask([ZypperOffers().command(names)])
        offers = zypper.parse_offers(lines)
        also = [zypper.named_too(upstream, stray, offers) for upstream, stray in zip(upstreams, strays, strict=True)]
        for one, more in zip(picked, also, strict=True):
            one.update(more)
        return any(also)

    def _ask(self, questions: Sequence[str], every_stream: bool = False) -> list[list[str]]:
        """Return what each probe printed."""
        hidden = "module_hotfixes=1\n" if every_stream and self.manager == "dnf" else ""
        files = "\n".join(text + hidden for text in self._repositories)
        folder = "/etc/zypp/repos.d" if self.manager == "zypper" else "/etc/yum.repos.d"
        told = f"mkdir -p {folder}; printf '%s' {shlex.quote(files)} > {folder}/asked.repo"
        return ask(
            self.root, self.work, f"{told}\n{self._setup}", questions, network=self.network,
            platform=self._platform, release=self._release,
        )  # fmt: skip


_DNF_SETUP = """
printf '[main]\\ngpgcheck=1\\nbest=True\\nskip_if_unavailable=False\\ninstall_weak_deps=False\\n' > /etc/dnf/dnf.conf
printf 'cachedir=/work/cache\\nmetadata_expire=-1\\nmodule_platform_id=%s\\n' "$platform" >> /etc/dnf/dnf.conf
mkdir -p /etc/dnf/plugins /etc/dnf/vars; printf '[main]\\nenabled=false\\n' > /etc/dnf/plugins/local.conf
printf '%s' "$release" > /etc/dnf/vars/releasever
dnf -q -y makecache > /dev/null
"""
_ZYPPER_SETUP = """
mkdir -p /etc/rpm /work/cache; printf '%%_dbpath /var/lib/rpm\\n' > /etc/rpm/macros.asked
rm -rf /var/cache/zypp; ln -s /work/cache /var/cache/zypp
zypper -n --gpg-auto-import-keys refresh > /work/refresh 2>&1 || { cat /work/refresh >&2; exit 1; }
"""
_DNF5_SETUP = """
printf '[main]\\ngpgcheck=1\\nskip_if_unavailable=False\\ninstall_weak_deps=False\\n' > /etc/dnf/dnf.conf
printf 'cachedir=/work/cache\\nsystem_cachedir=/work/cache\\nmetadata_expire=-1\\n' >> /etc/dnf/dnf.conf
mkdir -p /etc/rpm /etc/dnf/vars /etc/dnf/libdnf5-plugins; printf '%%_dbpath /var/lib/rpm\\n' > /etc/rpm/macros.asked
printf '[main]\\nname=local\\nenabled=0\\n' > /etc/dnf/libdnf5-plugins/local.conf
printf '%s' "$release" > /etc/dnf/vars/releasever
dnf5 -q -y makecache > /dev/null
"""
_SETUPS = {"dnf": _DNF_SETUP, "dnf5": _DNF5_SETUP, "zypper": _ZYPPER_SETUP}
# What reads the answers of each.
_READ: Mapping[str, Any] = {"dnf": dnf, "dnf5": dnf5, "zypper": zypper}
_OFFERS = {"dnf": dnf.parse_offers, "dnf5": dnf.parse_offers, "zypper": zypper.parse_offers}


def plain(label: str, address: str, key: str = "baseurl") -> str:
    """Return a .repo file of a repository that is trusted as it is: nothing of it is installed.

    + address: file:///work/… for a folder of the work folder; key: mirrorlist where it is the address of one
    """
    lines = [f"[{label}]", f"name={label}", f"{key}={address}", "enabled=1", "autorefresh=0", "gpgcheck=0"]
    return "\n".join([*lines, "repo_gpgcheck=0"]) + "\n"


def _offers(manager: str, asked: PackageSet) -> str:
    return _asked(manager, sorted(asked.packages), asked.stream)


def _asked(manager: str, names: list[str], stream: str = "") -> str:
    if manager == "dnf":
        return DnfOffers().command(names, stream)
    return Dnf5Offers().command(names) if manager == "dnf5" else ZypperOffers().command(names)


def _simulation(manager: str, asked: PackageSet, coming: Mapping[str, str]) -> str:
    if manager == "dnf":
        return DnfSimulation().command(dict(coming), [], asked.stream, _upstream(asked, coming))
    if manager == "dnf5":
        return Dnf5Simulation().command(dict(coming), [], _upstream(asked, coming))
    return ZypperSimulation().command(dict(coming), [])


def _upstream(asked: PackageSet, coming: Mapping[str, str]) -> str:
    return next((versions.upstream(coming[name]) for name, rule in asked.packages.items() if rule), "")


def _chosen(asked: PackageSet, offers: Offers) -> Resolved | dict[str, str]:
    try:
        return chosen(asked.packages, {}, offers.available)
    except NotInstallable as error:
        return Resolved(errors=(str(error),))


def _picked(found: Resolved | dict[str, str]) -> dict[str, str]:
    assert isinstance(found, dict)
    return found


def _resolved(simulation: Simulation, picked: Mapping[str, str]) -> Resolved:
    if simulation.errors:
        return Resolved(errors=simulation.errors, chosen=picked)
    installed = {name: new for name, _, new in simulation.comes}
    return Resolved(installed, tuple(name for name, _ in simulation.goes), chosen=picked)


__all__ = ["PackageSet", "Resolved", "RpmManager", "plain"]
