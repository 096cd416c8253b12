"""The driver's packages of an rpm repository: numbers and relations from its table, contents from the .deb fixtures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpunode.lab.packages.deb import Deb
from gpunode.lab.packages.driver import packages_of
from gpunode.lab.packages.rpm import Rpm
from gpunode.lab.packages.rpm_names import rpm_of
from gpunode.lab.world.rpm import RpmWorld

# Whose contents a package has, by its name: modules, nvidia-smi, daemons. All others are empty.
_CONTENTS = (
    (re.compile(r"kmod-nvidia-open-dkms|nvidia-open-driver-G\d\d(-kmp-.*)?"), "nvidia-kernel-open-dkms"),
    (re.compile(r"kmod-nvidia-latest-dkms|nvidia-driver-G\d\d(-kmp-.*)?"), "nvidia-kernel-dkms"),
    (re.compile(r"nvidia-driver-cuda|nvidia-compute-utils-G\d\d"), "nvidia-driver-cuda"),
    (re.compile("nvidia-persistenced"), "nvidia-persistenced"),
    (re.compile("nvidia-fabric-?manager"), "nvidia-fabricmanager"),
)
_LIBRARY = "libnvidia-ml1"
# The first of these that there is holds the library.
_HOLDS_LIBRARY = (re.compile("libnvidia-ml"), re.compile("nvidia-driver-common"), re.compile(r"nvidia-compute-G\d\d"))
# Where the fixtures' modules go, which is DKMS' place on Debian.
_DKMS_PLACE = "updates/dkms"


def driver_rpms(world: RpmWorld) -> dict[str, list[Rpm]]:
    """Return group -> packages of a repository; no package is twice in one, and no two of one hold the same file."""
    groups = {version: _filled(world.of_version(version), version, world.dkms_place) for version in world.versions}
    return {**groups, "transitional": world.transitional_packages(), "own": world.of_their_own()}


def _filled(packages: Sequence[Rpm], version: str, dkms_place: str) -> list[Rpm]:
    # Fabric manager's .deb has the branch in its name, where that is an old one.
    contents = {re.sub(r"^(nvidia-fabricmanager)-\d+$", r"\1", deb.name): deb for deb in packages_of(version)}
    names = [package.name for package in packages]
    library = next(name for pattern in _HOLDS_LIBRARY for name in names if pattern.fullmatch(name))
    return [_with(package, _content(package.name, library, contents), dkms_place) for package in packages]


def _content(name: str, library: str, contents: Mapping[str, Deb]) -> Deb | None:
    if name == library:
        return contents[_LIBRARY]
    return next((contents[deb] for pattern, deb in _CONTENTS if pattern.fullmatch(name)), None)


def _with(package: Rpm, deb: Deb | None, dkms_place: str) -> Rpm:
    if deb is None:
        return package
    like = rpm_of(deb)
    scripts = tuple((section, text.replace(_DKMS_PLACE, dkms_place)) for section, text in like.scripts)
    return replace(package, description=like.description, files=like.files, scripts=scripts, config=like.config)
