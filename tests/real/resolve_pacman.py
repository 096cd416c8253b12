"""What pacman would do with given repositories: the real one, in a throwaway container, which installs nothing.

It is asked by gpunode's own probes, on a system that has nothing, and what it answers is read by gpunode's own parsers.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpunode.base.tables.sources import Distribution
from gpunode.facts.families.pacman import PacmanOffers, PacmanSimulation
from gpunode.packages.driver_packages.choice import NotInstallable, chosen
from gpunode.packages.families import pacman
from tests.real.asking import ask
from tests.real.package_sets import Asked, pairs, refused

REPOSITORIES = ("core", "extra")
# Debian's pacman has no keys of Arch's: what is only resolved is not verified.
_SETUP = """
printf '%s' "$configuration" > /etc/pacman.conf
mkdir -p /work/db /etc/pacman.d
pacman -Sy --noconfirm --logfile /dev/null > /work/refresh 2>&1 || { cat /work/refresh >&2; exit 1; }
"""


class PacmanRepositories:
    """Be the pacman of a distribution that has read its repositories.

    + root: a root filesystem that has pacman; work: a folder of its own, /work for pacman
    + server: the address of a repository, with $repo and $arch; network: whether it is elsewhere
    + repositories: the names of those that are read
    """

    def __init__(
        self, row: Distribution, root: Path, work: Path, server: str, *, network: bool = False,
        repositories: Sequence[str] = REPOSITORIES,
    ) -> None:  # fmt: skip
        """Hold what is to be asked; nothing runs yet."""
        self._row, self._root, self._work, self._network = row, root, work, network
        sections = "".join(f"[{name}]\nServer = {server}\n" for name in repositories)
        self._configuration = f"[options]\nArchitecture = x86_64\nSigLevel = Never\nDBPath = /work/db\n{sections}"
        self._offers: dict[str, tuple[str, ...]] = {}

    def offers(self, *names: str) -> Mapping[str, tuple[str, ...]]:
        """Return name -> the one version that there is."""
        if unknown := [name for name in names if name not in self._offers]:
            (lines,) = self._ask([PacmanOffers().command(unknown)])
            there = dict(pacman.parse_offers(lines).available)
            self._offers |= {name: (there[name],) if name in there else () for name in unknown}
        return {name: self._offers[name] for name in names if self._offers[name]}

    def problems(self, asked: Sequence[Asked]) -> list[str | None]:
        """Return of each set why it cannot be installed, or what gpunode would refuse of it."""
        found: list[str | None] = []
        going: list[tuple[int, dict[str, str]]] = []
        for number, each in enumerate(asked):
            try:
                going.append((number, chosen(each.desired, {}, pairs(self.offers(*each.desired)))))
                found.append(None)
            except NotInstallable as error:
                found.append(str(error))
        answers = self._ask([PacmanSimulation().command(picked, []) for _, picked in going])
        for (number, picked), lines in zip(going, answers, strict=True):
            simulation = pacman.parse_simulation(lines)
            missing = set(picked) - {name for name, _, _ in simulation.comes}
            if simulation.errors:
                found[number] = f"pacman refuses: {'; '.join(simulation.errors)[-400:]}"
            elif missing:
                found[number] = f"{', '.join(sorted(missing))} would not come"
            else:
                found[number] = refused(asked[number], self._row, simulation, picked)
        return found

    def _ask(self, questions: Sequence[str]) -> list[list[str]]:
        setup = f"configuration={shlex.quote(self._configuration)}\n{_SETUP}"
        return ask(self._root, self._work, setup, questions, network=self._network)
