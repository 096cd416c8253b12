"""Live repositories for apt: the distribution's own archive, NVIDIA's, the container toolkit's and Docker's.

Each repository is trusted as a node would trust it: the distribution's by its own keyring, the others by the key that
gpunode's tables name, compared by its fingerprint.
"""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import yaml

from gpunode import tables
from gpunode.settings import settings_from
from gpunode.tables import Distribution
from lab.host_apt import host_apt
from lab.world import apt as world
from tests.real import package_sets
from tests.real.checked import Checked
from tests.real.resolve_apt import Apt

CODENAMES = {
    ("debian", "12"): "bookworm", ("debian", "13"): "trixie",
    ("ubuntu", "22.04"): "jammy", ("ubuntu", "24.04"): "noble", ("ubuntu", "26.04"): "resolute",
}  # fmt: skip
_DEBIAN_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UBUNTU_KEYRING = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
_UBUNTU = "http://archive.ubuntu.com/ubuntu"


class NotReached(RuntimeError):
    """Say which key or keyring is not to be had."""


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
    return resolved(row, repository, apt)


def resolved(row: Distribution, repository: str, apt: Apt) -> Checked:
    """Return what an apt that has read a repository finds; live or made by a table."""
    found = Checked()
    sets = list(package_sets.other_sets(row, repository, apt))
    if repository == "cuda" or (repository == "own" and row.own_branch):
        sets += package_sets.driver_sets(row, "cuda-repository" if repository == "cuda" else "distribution", apt)
    known = dict(_known_problems(row, repository))
    for asked in sets:
        problem = package_sets.problem_of(asked, apt, row)
        expected = known.pop(asked.what, None)
        if problem is None:
            found.resolved.append(asked.what)
            if expected is not None:
                found.moved.append(f"{asked.what} resolves, and the tables say that it does not ({expected})")
        elif expected is not None and expected in problem:
            found.resolved.append(f"{asked.what} (refused, as the tables say)")
        else:
            found.problems.append(f"{asked.what}: {problem}")
    found.moved += _moved_since_seen(row, repository, apt)
    if repository == "cuda":
        found.moved += _moved_of_nvidia(row, apt)
    return found


def _moved_since_seen(row: Distribution, repository: str, apt: Apt) -> list[str]:
    """Return in what a repository differs from what it had when it was last looked at (seen.yaml)."""
    seen = yaml.safe_load((Path(__file__).parent / "seen.yaml").read_text(encoding="utf-8"))
    known = seen.get(f"{row.id} {row.version}", {})
    packages = known.get(repository, {})
    offers = apt.offers(*packages) if packages else {}
    newest = {name: offers.get(name, ("no version",))[0] for name in packages}
    return [
        f"{name} is at {newest[name]}, and was at {version} on {known['date']}"
        for name, version in packages.items()
        if newest[name] != version
    ]


def _known_problems(row: Distribution, repository: str) -> Mapping[str, str]:
    """Return what -> words of the refusal, of sets that the tables say cannot be had."""
    if repository != "own" or row.open_behind is None:
        return {}
    module, rest = row.open_behind["module"], row.open_behind["rest"]
    words = f"at {module} and the rest of its driver at {rest}"
    return {f"driver {row.own_branch} open{group}": words for group in ("", " mps")}


def _moved_of_nvidia(row: Distribution, apt: Apt) -> list[str]:
    """Return in what NVIDIA's repository differs from the tables: branches, and names with their versions."""
    told = []
    there = package_sets.branches(apt)
    if row.driver_branches and there and there != row.driver_branches:
        told.append(f"driver branches {', '.join(there)}, and the table has {', '.join(row.driver_branches)}")
    unknown = [branch for branch in there if branch not in tables.drivers().branches]
    told += [f"driver branch {branch} is in no table" for branch in unknown]
    if row.repository in world.repositories():
        packages = world.driver_packages(row.repository)
        offers = apt.offers(*{package.name for package in packages})
        for package in packages:
            versions = offers.get(package.name, ())
            if package.version not in versions:
                has = ", ".join(versions[:4]) or "no package of that name"
                told.append(f"{package.name} {package.version} ({package.confidence}) is not there, but {has}")
        newest = {name: found[0] for name, found in offers.items()}
        known = {package.version for package in packages}
        told += [
            f"{name} {version} is newer than the table" for name, version in newest.items() if version not in known
        ]
    proprietary = [version for version in apt.offers("cuda-drivers").get("cuda-drivers", ())
                   if version.partition(".")[0] > tables.drivers().last_proprietary]  # fmt: skip
    told += [f"cuda-drivers {version} is there, of a branch without proprietary packages" for version in proprietary]
    return told


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
    found = (
        settings_from({})
        .repositories.on(repository, row.family, row.unverified_key, row.repository)
        .at(
            distribution=row.repository or "",
            architecture=row.architectures["x86_64"],
            os_id=row.docker or row.id,
            channel="stable",
        )
    )
    keyring = folder / f"{repository}.asc"
    try:
        with urllib.request.urlopen(found.key_url, timeout=30) as answer:
            keyring.write_bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        raise NotReached(f"{found.key_url}: {error}") from error
    told = fingerprints(keyring)
    if told != {found.key_fingerprint}:
        raise AssertionError(f"{found.key_url} holds {', '.join(sorted(told))}, and not {found.key_fingerprint}")
    suite, components = (CODENAMES[row.id, row.version], "stable") if repository == "docker" else ("/", "")
    return "\n" + _stanza(found.url, suite, components, str(keyring))


def fingerprints(keyring: Path) -> set[str]:
    """Return the fingerprints of the primary keys in a file."""
    shown = subprocess.run(
        ["gpg", "--batch", "--with-colons", "--show-keys", str(keyring)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    after = [line.split(":") for line in shown if line.startswith(("pub:", "fpr:"))]
    return {words[9] for before, words in pairwise(after) if before[0] == "pub"}


def _stanza(uri: str, suites: str, components: str, keyring: str) -> str:
    line = f"Components: {components}\n" if components else ""
    return f"Types: deb\nURIs: {uri}\nSuites: {suites}\n{line}Signed-By: {keyring}\n"
