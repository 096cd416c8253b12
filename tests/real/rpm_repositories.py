"""Live repositories for dnf, dnf 5 and zypper: the distribution's own, NVIDIA's, the container toolkit's and Docker's.

NVIDIA's, the toolkit's and Docker's are read as a node reads them: by the .repo file that gpunode writes, with metadata
signed by the key that gpunode's tables name, compared by its fingerprint.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpunode.base.tables import repositories
from gpunode.base.tables.sources import Distribution
from gpunode.lab.families import FAMILIES
from gpunode.lab.image import tools
from gpunode.lab.world.rpm import rpm_world
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families import dnf, zypper
from tests.real.asking import ManagerFailed
from tests.real.checked import Checked, failed
from tests.real.keys import Closed, NotReached, fetched_key, published
from tests.real.own_repositories import addresses
from tests.real.package_sets import Asked, refused
from tests.real.repositories import resolved
from tests.real.resolve_rpm import PackageSet, Resolved, RpmManager, plain


class RpmRepositories:
    """Be the dnf, dnf 5 or zypper of a distribution that has read repositories."""

    def __init__(self, row: Distribution, manager: RpmManager) -> None:
        """Hold what is asked."""
        self._row, self._manager = row, manager

    def offers(self, *names: str) -> Mapping[str, tuple[str, ...]]:
        """Return name -> versions, newest first, of all module streams."""
        return self._manager.offers(*names)

    def problems(self, asked: Sequence[Asked]) -> list[str | None]:
        """Return of each set why it cannot be installed, or what gpunode would refuse of it."""
        found = self._manager.resolve([PackageSet(each.desired, each.stream) for each in asked])
        return [self._problem(each, one) for each, one in zip(asked, found, strict=True)]

    def _problem(self, asked: Asked, found: Resolved) -> str | None:
        if not found.possible:
            return f"{self._manager.manager} refuses: {' '.join(found.errors)[-400:]}"
        missing = [name for name in asked.desired if name not in found.installed]
        if missing:
            return f"{', '.join(missing)} would not come"
        comes = Simulation(tuple((name, None, version) for name, version in found.installed.items()),
                           tuple((name, "") for name in found.removed), manager=self._manager.manager)  # fmt: skip
        return refused(asked, self._row, comes, {name: found.chosen[name] for name in asked.desired})


def check(row: Distribution, repository: str, folder: Path) -> Checked:
    """Resolve what gpunode would ask a live repository for; REPOSITORIES names them."""
    if os.geteuid() != 0 or shutil.which("podman") is None:
        return Checked(unreached=[f"{row.family} runs in a container: root and podman are needed (make lab-tools)"])
    moved: list[str] = []
    try:
        texts = list(own(row))
        if repository != "own":
            texts.append(of_others(row, repository, folder, moved))
        manager = RpmManager(
            row.family, tools(print, FAMILIES[row.family]), folder, texts,
            platform=rpm_world(str(row.repository)).platform, release=row.version, network=True,
        )  # fmt: skip
        found = resolved(row, repository, RpmRepositories(row, manager))
    except Closed as error:
        return Checked(beyond=[str(error)])
    except NotReached as error:
        return Checked(unreached=[str(error)], moved=moved)
    except ManagerFailed as error:
        return failed(error, moved)
    found.moved[:0] = moved
    return found


def own(row: Distribution) -> Iterator[str]:
    """Yield .repo files of a distribution's own archive; raise Closed where it is open to customers alone."""
    for number, (address, mirrors) in enumerate(addresses(row)):
        yield plain(f"own-{number}", address, "mirrorlist" if mirrors else "baseurl")


def of_others(row: Distribution, repository: str, folder: Path, moved: list[str]) -> str:
    """Return the product's .repo file of NVIDIA's, the toolkit's or Docker's repository, and put its key into `folder`.

    Of a key whose fingerprint nobody has verified, `moved` tells what it is. Raise Closed or NotReached.
    """
    if repository == "docker" and row.docker == "":
        raise Closed(f"Docker has no packages for {row.name}")
    found = published(row, repository)
    fingerprint = fetched_key(found.key_url, found.key_fingerprint, folder / f"{repository}.asc")
    if not found.key_fingerprint:
        moved.append(f"{found.key_url}, which no table verifies, is {fingerprint}")
    address = f"{found.url.rstrip('/')}/{row.version}/$basearch/stable" if repository == "docker" else found.url
    signed = repositories(row.family)[repository].packages_signed
    text = zypper.repository_text if row.family == "zypper" else dnf.repository_text
    return text(repository, address, f"/work/{repository}.asc", signed)
