"""pacman: what is ignored in upgrades, what a repository has, and what an installation would bring along.

A rolling release knows no older state to install from: a package of today belongs beside the system of today. So a
package that gpunode brings is judged with all that it needs, to the last library, as the repositories have it now.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.names import brings_kernels, pairs, wanted
from gpunode.packages.driver_packages.simulation import Simulation, exit_status
from gpunode.packages.installed_packages import InstalledPackages

CONFIGURATION = "/etc/pacman.conf"
# Read from pacman.conf by one line of ours.
IGNORED = "/etc/pacman.d/gpunode.conf"
_INCLUDE = f"Include = {IGNORED}"
_OPTIONS = "[options]"
# What pacman takes; that a driver's are names and versions of a driver is judged with the choice.
_NAME = re.compile(r"[A-Za-z0-9@_+][A-Za-z0-9@._+-]*", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9.+~:_^-]+", re.ASCII)
_TRUSTED = frozenset({"PackageRequired", "PackageTrustedOnly"})


@dataclass(frozen=True)
class IgnoredPackages(DriverPackages):
    """Hold the driver's packages by pacman; `configuration` is pacman.conf's text, `ignored` that of our own file.

    `stale_lock` says that a pacman ended without taking its lock away.
    """

    configuration: str = ""
    ignored: str | None = None


def ignored_text(names: Iterable[str]) -> str:
    """Return our file: what an upgrade of the system leaves as it is."""
    listed = "".join(f"IgnorePkg = {name}\n" for name in sorted(names))
    return f"# Written by gpunode: held with the driver (driver.hold)\n{listed}"


def including(text: str, desired: bool) -> str:
    """Return pacman.conf with our file included once, in [options], or not at all; everything else stays.

    Raise ValueError where there is no [options] to include it in.
    """
    lines = [line for line in text.split("\n") if line.strip() != _INCLUDE]
    if not desired:
        return "\n".join(lines)
    place = next((number for number, line in enumerate(lines) if line.strip() == _OPTIONS), None)
    if place is None:
        raise ValueError(f"{CONFIGURATION} has no section [options]")
    return "\n".join([*lines[: place + 1], _INCLUDE, *lines[place + 1 :]])


def parse_installed(lines: list[str]) -> InstalledPackages:
    """Parse `package=NAME VERSION` lines; pacman must have told of its end, else its silence says nothing."""
    return InstalledPackages(tuple(sorted(_pairs(repeated(_answered(lines), "package")))), _stale_lock(lines))


def parse_driver_packages(lines: list[str]) -> IgnoredPackages:
    """Parse `package=WANT NAME VERSION` lines, pacman.conf and our file."""
    found = values(_answered(lines))
    packages, held = wanted(lines, _is_pair)
    return IgnoredPackages(
        tuple(sorted(dict(packages).items())),
        held,
        _stale_lock(lines),
        configuration=decoded(found, "configuration") or "",
        ignored=decoded(found, "ignored"),
    )


def _answered(lines: list[str]) -> list[str]:
    if values(lines).get("pacman") != "0":
        raise ParseError("pacman gave no answer")
    return lines


def _stale_lock(lines: list[str]) -> bool:
    return values(lines).get("lock") == "stale"


def parse_offers(lines: list[str]) -> Offers:
    """Parse `available=NAME VERSION` lines; of two repositories the first counts, as for pacman."""
    offered: dict[str, str] = {}
    for name, version in _pairs(repeated(_answered(lines), "available")):
        offered.setdefault(name, version)
    return Offers(tuple(offered.items()))


@dataclass(frozen=True)
class Behind:
    """Hold a package that is needed, at the version that is installed and at the one that the repositories have."""

    name: str
    installed: str
    offered: str

    def __str__(self) -> str:
        """Say both versions."""
        return f"{self.name} {self.installed} (the repositories have {self.offered})"


def parse_simulation(lines: list[str]) -> Simulation:
    """Parse what pacman says that it would do, and how what it needs differs from what is there.

    `status=`, `line=` are pacman's own; `comes=NAME VERSION` what would come; `installed=NAME VERSION`;
    `asked=NAME VERSION`; `going=NAME`; `differs=NAME INSTALLED OFFERED ORDER`, with vercmp's -1, 0 or 1, of all that is
    needed, `needed=` whether that could be told; `conflict=NAME OTHER`: two that cannot both be there.
    """
    status = exit_status(lines, "pacman")
    actual = dict(_pairs(repeated(lines, "installed")))
    comes = dict(_pairs(repeated(lines, "comes")))
    desired = dict(_pairs(repeated(lines, "asked")))
    going = [name for name in repeated(lines, "going") if name in actual]
    goes = dict.fromkeys(going) | dict.fromkeys(
        other for name, other in _words(repeated(lines, "conflict"), 2) if name in comes and other not in comes
    )
    errors = []
    if status:
        errors = [line.removeprefix("error: ").removeprefix(":: ") for line in repeated(lines, "line") if line][:6]
        errors = errors or [f"it exits {status}"]
    elif values(lines).get("needed") != "0":
        errors = ["what is asked for needs something that no repository has", *repeated(lines, "why")][:4]
    behind = [
        Behind(name, installed, offered)
        for name, installed, offered, order in _words(() if errors else repeated(lines, "differs"), 4)
        # A library that is newer than the mirror's does no harm; a module is for one kernel.
        if name not in comes and (order == "-1" or brings_kernels(name))
    ]
    # What would be upgraded along, without having been asked for.
    behind += [
        Behind(name, actual[name], version)
        for name, version in comes.items()
        if name not in desired and name in actual and actual[name] != version
    ]
    return Simulation(
        tuple((name, actual.get(name), version) for name, version in comes.items() if actual.get(name) != version),
        tuple((name, actual[name]) for name in goes if name in actual),
        tuple(errors),
        manager="pacman",
        trial="pacman -Sp",
        refusal=partial_upgrade(behind, sorted({item.name for item in behind} | (desired.keys() & actual.keys()))),
    )


def partial_upgrade(behind: list[Behind], names: Iterable[str]) -> tuple[str, str] | None:
    """Return why nothing may come beside a system that is behind, and what to do; None where it is not.

    + names: what an upgrade must name, since it may be held
    """
    if not behind:
        return None
    listed = ", ".join(str(item) for item in behind[:8]) + (" …" if len(behind) > 8 else "")
    return (
        "that would be a partial upgrade, which Arch does not support: what comes is made for the system of today, and "
        f"there is {listed}",
        f"upgrade the whole node (`pacman -Syu {' '.join(names)}`: named, because what is held stays otherwise), "
        "reboot it and run again; or have /etc/pacman.d/mirrorlist name the archive of the day that the node is of "
        "(https://archive.archlinux.org/repos/YYYY/MM/DD/$repo/os/$arch)",
    )


def unsafe(repositories: Iterable[tuple[str, tuple[str, ...]]]) -> list[tuple[str, str]]:
    """Return (repository, what it lacks) of those whose packages need not be signed by a trusted key.

    + repositories: (name, the levels that pacman-conf prints of it)
    """
    lacking = ((name, sorted(_TRUSTED - set(levels))) for name, levels in repositories)
    return [(name, ", ".join(levels)) for name, levels in lacking if levels]


def _words(lines: Iterable[str], number: int) -> list[list[str]]:
    found = [line.split(" ") for line in lines]
    if any(len(words) != number for words in found):
        raise ParseError("pacman's words are not its usual")
    return found


def _pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    return pairs(lines, _is_pair)


def _is_pair(name: str, version: str) -> bool:
    return bool(_NAME.fullmatch(name) and _VERSION.fullmatch(version))
