"""Live repositories for apt: the distribution's own archive, NVIDIA's, the container toolkit's and Docker's.

Each repository is trusted as a node would trust it: the distribution's by its own keyring, the others by the key that
gpunode's tables name, compared by its fingerprint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpunode.base.tables.sources import Distribution
from gpunode.lab.host_apt import host_apt
from gpunode.lab.world import apt as world
from gpunode.packages.driver_packages.choice import NotInstallable, chosen, module_behind, pin_text
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.driver_packages.sources import driver_source
from tests.real.checked import Checked
from tests.real.keys import NotReached, fetched_key, published
from tests.real.package_sets import Asked, pairs, refused, system, upstream_of
from tests.real.repositories import resolved
from tests.real.resolve_apt import Apt

CODENAMES = {
    ("debian", "12"): "bookworm", ("debian", "13"): "trixie",
    ("ubuntu", "22.04"): "jammy", ("ubuntu", "24.04"): "noble", ("ubuntu", "26.04"): "resolute",
}  # fmt: skip
_DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU_KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_UBUNTU = "http://archive.ubuntu.com/ubuntu"


class AptRepositories:
    """Be the apt of a distribution that has read repositories."""

    def __init__(self, row: Distribution, apt: Apt) -> None:
        """Hold what is asked."""
        self._row, self._apt = row, apt

    def offers(self, *names: str) -> Mapping[str, tuple[str, ...]]:
        """Return name -> versions, newest first."""
        return self._apt.offers(*names)

    def problems(self, asked: Sequence[Asked]) -> list[str | None]:
        """Return of each set why it cannot be installed, or what gpunode would refuse of it."""
        return [self._problem(each) for each in asked]

    def _problem(self, asked: Asked) -> str | None:
        offers = pairs(self.offers(*asked.desired))
        try:
            picked = chosen(asked.desired, {}, offers)
        except NotInstallable as error:
            return str(error)
        upstream = upstream_of(asked, picked)
        self._apt.prefer(pin_text(upstream) if upstream else "")
        found = self._apt.resolve(*(f"{name}={version}" for name, version in picked.items()))
        self._apt.prefer("")
        if not found.possible:
            return f"apt refuses: {' '.join(found.errors.split())[-400:]}"
        moved = {name for name, version in picked.items() if found.installed.get(name) != version}
        if moved:
            return f"{', '.join(sorted(moved))} would come at another version than was chosen"
        if asked.driver is not None:
            source = driver_source(asked.driver, system(self._row, "x86_64"))
            behind = module_behind(source, asked.desired, offers) if source else None
            if source and behind is not None:
                return behind.reason(source)
        comes = Simulation(tuple((name, None, version) for name, version in found.installed.items()),
                           tuple((name, "") for name in found.removed))  # fmt: skip
        return refused(asked, self._row, comes, picked)


def check(row: Distribution, repository: str, folder: Path) -> Checked:
    """Resolve what gpunode would ask a live repository for; REPOSITORIES names them."""
    try:
        sources = own_sources(row)
        if repository != "own":
            sources += of_others(row, repository, folder)
    except NotReached as error:
        return Checked(unreached=[str(error)])
    apt = Apt(folder / "apt", sources)
    lacking = apt.update()
    if lacking:
        return Checked(unreached=[f"{each.uri}: {each.reason}" for each in lacking])
    return apt_resolved(row, repository, apt)


def apt_resolved(row: Distribution, repository: str, apt: Apt) -> Checked:
    """Return what an apt finds that has read a repository, and package by package what moved in NVIDIA's."""
    found = resolved(row, repository, AptRepositories(row, apt))
    if repository == "cuda" and row.repository in world.repositories():
        found.moved += _moved_packages(row.repository, apt)
    return found


def _moved_packages(repository: str, apt: Apt) -> list[str]:
    """Return in what NVIDIA's repository differs from the table of it: names with their versions."""
    packages = world.driver_packages(repository)
    offers = apt.offers(*{package.name for package in packages})
    told = []
    for package in packages:
        versions = offers.get(package.name, ())
        if package.version not in versions:
            has = ", ".join(versions[:4]) or "no package of that name"
            told.append(f"{package.name} {package.version} ({package.confidence}) is not there, but {has}")
    newest = {name: found[0] for name, found in offers.items()}
    known = {package.version for package in packages}
    return told + [
        f"{name} {version} is newer than the table" for name, version in newest.items() if version not in known
    ]


def own_sources(row: Distribution) -> str:
    """Return deb822 sources of a distribution's own archive with its security updates; raise NotReached."""
    suite = CODENAMES[row.id, row.version]
    keyring = _DEBIAN_KEYRING if row.id == "debian" else _UBUNTU_KEYRING
    if not Path(keyring).is_file():
        raise NotReached(f"{keyring} is not on this machine (package {Path(keyring).stem})")
    if row.id == "debian":
        components = "main contrib non-free non-free-firmware"
        places = [(host_apt().mirror, f"{suite} {suite}-updates"), (host_apt().security, f"{suite}-security")]
    else:
        components = "main restricted universe multiverse"
        places = [(_UBUNTU, f"{suite} {suite}-updates {suite}-security")]
    return "\n".join(_stanza(uri, suites, components, keyring) for uri, suites in places)


def of_others(row: Distribution, repository: str, folder: Path) -> str:
    """Return the deb822 source of NVIDIA's, the toolkit's or Docker's repository; raise NotReached for its key."""
    found = published(row, repository)
    keyring = folder / f"{repository}.asc"
    fetched_key(found.key_url, found.key_fingerprint, keyring)
    suite, components = (CODENAMES[row.id, row.version], "stable") if repository == "docker" else ("/", "")
    return "\n" + _stanza(found.url, suite, components, str(keyring))


def _stanza(uri: str, suites: str, components: str, keyring: str) -> str:
    line = f"Components: {components}\n" if components else ""
    return f"Types: deb\nURIs: {uri}\nSuites: {suites}\n{line}Signed-By: {keyring}\n"
