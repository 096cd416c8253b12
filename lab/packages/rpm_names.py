"""The fixture packages as rpm distributions call, number and place them; the contents are those of the .deb ones."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lab.packages.deb import Deb, Payload
from lab.packages.rpm import Rpm

_DEPENDENCY = re.compile(r"(?P<name>\S+)(?: \((?P<sign><<|<=|=|>=|>>) (?P<version>[^)]+)\))?")
_SIGNS = {"<<": "<", ">>": ">"}
# Debian's base has it, outside of the rpm database.
_OF_THE_BASE = {"python3"}
_FOLDERS = (("usr/lib/x86_64-linux-gnu/", "usr/lib64/"), ("lib/systemd/system/", "usr/lib/systemd/system/"))
# rpm tells a script how many of the package there will be; ours expect dpkg's words.
_SCRIPTS = {
    "postinst": ("post", "set -- configure"),
    "prerm": ("preun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi'),
    "postrm": ("postun", 'if [ "$1" = 0 ]; then set -- remove; else set -- upgrade; fi'),
}


@dataclass(frozen=True)
class Naming:
    """Hold how a distribution calls what Debian calls otherwise, and how it numbers it.

    `epoch` is that of the driver's packages, `release` stands behind every version; `fixed` are names to which neither
    applies: they are built for no distribution in particular.
    """

    names: Mapping[str, str]
    epoch: int
    release: str
    fixed: re.Pattern[str]

    def name(self, deb: str) -> str:
        """Return a package's name there."""
        return self.names.get(deb, "nvidia-fabric-manager" if re.fullmatch(r"nvidia-fabricmanager-\d+", deb) else deb)

    def epoch_of(self, deb: str) -> int:
        """Return a package's epoch there."""
        return 0 if self.fixed.match(deb) else self.epoch

    def release_of(self, deb: str) -> str:
        """Return what stands behind a package's version there."""
        return "1" if self.fixed.match(deb) else self.release


_FIXED = re.compile(r"nvidia-fabricmanager|cuda-toolkit|nvidia-container|nvidia-docker|libnvidia-container|containerd")
RHEL9 = Naming(
    names=MappingProxyType(
        {
            "libnvidia-ml1": "libnvidia-ml",
            "nvidia-kernel-open-dkms": "kmod-nvidia-open-dkms",
            "nvidia-kernel-dkms": "kmod-nvidia-latest-dkms",
        }
    ),
    epoch=3,
    release="1.el9",
    fixed=_FIXED,
)
# SUSE's own names for the driver's parts, which NVIDIA's repository for it has as well.
LEAP15 = Naming(
    names=MappingProxyType(
        {
            "libnvidia-ml1": "nvidia-compute-G06",
            "nvidia-driver-cuda": "nvidia-compute-utils-G06",
            "nvidia-kernel-open-dkms": "nvidia-open-driver-G06",
            "nvidia-kernel-dkms": "nvidia-driver-G06",
        }
    ),
    epoch=0,
    release="1",
    fixed=_FIXED,
)


def rpm_of(deb: Deb, naming: Naming) -> Rpm:
    """Return the same package for an rpm distribution."""
    files = tuple(replace(file, path=place(file.path)) for file in deb.files)
    return Rpm(
        name=naming.name(deb.name),
        epoch=naming.epoch_of(deb.name),
        version=deb.version.rpartition("-")[0],
        release=naming.release_of(deb.name),
        description=deb.description,
        architecture="noarch" if deb.architecture == "all" else "x86_64",
        requires=tuple(_relations(deb.depends, naming)),
        provides=tuple(_relations(deb.provides, naming)),
        # Of two kernel flavours, one goes when the other comes; a package's own name it cannot name here.
        conflicts=tuple(item for item in _relations(deb.conflicts, naming) if item != naming.name(deb.name)),
        files=files,
        scripts=tuple((_SCRIPTS[name][0], f"{_SCRIPTS[name][1]}\n{_body(text)}") for name, text in deb.scripts),
        config=tuple(map(place, deb.conffiles)),
    )


def _relations(field: str, naming: Naming) -> Iterator[str]:
    for item in filter(None, (part.strip() for part in field.split(","))):
        match = _DEPENDENCY.fullmatch(item)
        assert match is not None, item
        if match["name"] in _OF_THE_BASE:
            continue
        name = naming.name(match["name"])
        if match["version"] is None:
            yield name
            continue
        version, dash, _ = match["version"].partition("-")
        sign = _SIGNS.get(match["sign"], match["sign"])
        epoch = naming.epoch_of(match["name"])
        release = f"-{naming.release_of(match['name'])}" if dash else ""
        yield f"{name} {sign} {f'{epoch}:' if epoch else ''}{version}{release}"


def place(path: str) -> str:
    for debian, there in _FOLDERS:
        if path.startswith(debian):
            return there + path.removeprefix(debian)
    return path


def _body(script: str) -> str:
    return script.removeprefix("#!/bin/sh\n")


def system_rpm(name: str, version: str, release: str, *files: Payload, provides: tuple[str, ...] = ()) -> Rpm:
    """Return a package of the distribution itself: what Debian's base has already, or of rpm's own world."""
    return Rpm(name, version, f"{name} (SIMULATED distribution)", release=release, architecture="noarch", files=files,
               provides=provides)  # fmt: skip
