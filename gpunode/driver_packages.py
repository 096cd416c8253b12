"""The packages that make up the driver: which a node shall have, which are there, and what apt would do to them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpunode import tables, versions
from gpunode.apt_errors import explained
from gpunode.boot import Boot
from gpunode.deb import satisfies
from gpunode.probe_output import decoded, repeated, values
from gpunode.reading import ParseError, Reading
from gpunode.settings import Settings

META_PACKAGES = {"open": "nvidia-open", "proprietary": "cuda-drivers"}
# Globs, as dpkg-query and apt's preferences take them, and what of their catch is not the driver, as grep -E takes it:
# the container toolkit, and CUDA's own tools under Debian's names.
GLOBS = (
    "nvidia-*", "libnvidia-*", "cuda-drivers*", "libcuda1", "libcudadebugger1", "libnvcuvid1", "libnvoptix1",
    "libxnvctrl0", "xserver-xorg-video-nvidia*", "linux-modules-nvidia-*", "linux-objects-nvidia-*",
    "linux-signatures-nvidia-*", "firmware-nvidia-*", "nvlsm",
)  # fmt: skip
OWN = (
    "^(nvidia-.*|libnvidia-.*|cuda-drivers.*|libcuda1|libcudadebugger1|libnvcuvid1|libnvoptix1|libxnvctrl0|"
    "xserver-xorg-video-nvidia.*|linux-(modules|objects|signatures)-nvidia-.*|firmware-nvidia-.*|nvlsm)$"
)
FOREIGN = (
    "^(nvidia-container-.*|libnvidia-container.*|nvidia-docker.*|nvidia-cuda-(toolkit|dev|gdb|samples|doc).*|"
    "nvidia-cudnn.*|nvidia-(visual-)?profiler.*|nvidia-nsight.*|nvidia-mig-.*|nvidia-gpu-.*|nvidia-dcgm.*|nvidia-texture-tools.*|nvidia-prime.*|nvidia-acs-.*|"
    "nvidia-fs.*|nvidia-gds.*|nvidia-mlnx.*)$"
)
_OWN, _FOREIGN = re.compile(OWN), re.compile(FOREIGN)
# linux-image-amd64 and linux-generic bring the next kernel; linux-image-6.1.0-40-amd64 is one kernel and stays.
KERNEL_GLOBS = ("linux-*",)
_KERNEL_META = re.compile(
    r"linux(-image|-headers)?-"
    r"(generic|virtual|lowlatency|aws|azure|gcp|gke|oracle|oem|nvidia|raspi|kvm|((cloud|rt)-)?(amd64|arm64))(-[a-z0-9.]+)*"
)
_DRIVER_VERSION = re.compile(r"(?:\d+:)?(\d{3})\.\d{2,3}(?:\.\d+)?(?:[-+~].*)?", re.ASCII)
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+", re.ASCII)
_DEB_VERSION = re.compile(r"[0-9][A-Za-z0-9.+~:-]*", re.ASCII)
_FABRIC_MANAGER = re.compile(r"nvidia-fabricmanager(-\d{3})?")
# Above any that NVIDIA's own pinning packages give (1000, 1001): in the transaction the version that is asked counts.
PRIORITY = 1100


class NotInstallable(Exception):
    """Say which package is not to be had as asked, and what there is."""


@dataclass(frozen=True)
class DriverPackages(Reading):
    """Hold what dpkg has of the driver, of kernels and their headers: (name, version), and which of them are held.

    `interrupted` as in DebPackages. `preferences` and `unattended` are the texts of our two files that keep them still,
    None where there is none.
    """

    packages: tuple[tuple[str, str], ...]
    held: tuple[str, ...] = ()
    interrupted: bool = False
    preferences: str | None = None
    unattended: str | None = None

    @property
    def driver(self) -> dict[str, str]:
        """Return name -> version of the driver's packages alone."""
        return {name: version for name, version in self.packages if belongs(name)}

    def missing(self, wanted: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return the names that are not there as asked; those that have a version must share one upstream version."""
        there = dict(self.packages)
        bad = [name for name, rule in wanted.items() if name not in there or not satisfies(there[name], rule)]
        together = {versions.upstream(there[name]) for name, rule in wanted.items() if rule and name not in bad}
        if len(together) > 1:
            bad += [name for name, rule in wanted.items() if rule and name not in bad]
        return tuple(sorted(bad))

    def obsolete(self, wanted: Mapping[str, str | None]) -> tuple[str, ...]:
        """Return installed fabric managers under other names than the wanted one: two of them cannot be."""
        if not any(is_fabric_manager(name) for name in wanted):
            return ()
        return tuple(name for name in sorted(self.driver) if is_fabric_manager(name) and name not in wanted)

    def to_hold(self, kernel: bool) -> dict[str, str]:
        """Return name -> version of what is to be held; with `kernel`, the packages that bring new kernels, too."""
        return {name: version for name, version in self.packages if belongs(name) or (kernel and brings_kernels(name))}

    @property
    def held_by_us(self) -> tuple[str, ...]:
        """Return the names in our preferences: what others hold is not ours to release."""
        lines = (self.preferences or "").splitlines()
        return tuple(word for line in lines if line.startswith("Package: ") for word in line.split()[1:])


def belongs(name: str) -> bool:
    """Say whether a package is part of the driver, by its name."""
    return _OWN.match(name) is not None and _FOREIGN.match(name) is None


def brings_kernels(name: str) -> bool:
    """Say whether a package is one through which new kernels come, or their headers."""
    return _KERNEL_META.fullmatch(name) is not None


def is_fabric_manager(name: str) -> bool:
    """Say whether a package is fabric manager, under any of its names."""
    return _FABRIC_MANAGER.fullmatch(name) is not None


def driver_branch(version: str) -> str | None:
    """Return the branch that a package's version tells (580.95.05-1: 580); None where it is no driver's version."""
    match = _DRIVER_VERSION.fullmatch(version)
    return match[1] if match else None


def package_set(settings: Settings, flavour: str, nvswitches: int, boot: Boot) -> dict[str, str | None]:
    """Return package -> rule (branch or version; None: any) of the driver, as NVIDIA's CUDA repository names them.

    Headers are asked for where the settings let gpunode install them and the kernel that boots next has none.
    """
    asked = settings.driver
    rule = asked.version or asked.branch or ""
    wanted: dict[str, str | None] = {f"nvidia-driver-pinning-{rule}": None, META_PACKAGES[flavour]: rule}
    if nvswitches:
        wanted[tables.drivers().fabric_manager_package(rule)] = rule
    if asked.kernel_headers == "install":
        for kernel in boot.kernels:
            # Not those of the running kernel: archives drop the headers of older ones.
            if kernel.release == boot.next_release and not kernel.headers:
                wanted[f"linux-headers-{kernel.release}"] = None
    return wanted


def chosen(
    wanted: Mapping[str, str | None], installed: Mapping[str, str], available: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return name -> package version of everything wanted; those with a rule at one upstream version.

    It is the version that is installed already where any that has a rule fits (nothing moves further than it must),
    else the newest that every one of them has. `available` are (name, version) in apt's order, newest first. Raise
    NotInstallable.
    """
    offered: dict[str, list[str]] = {}
    for name, version in available:
        offered.setdefault(name, []).append(version)
    for name, version in installed.items():
        if name in wanted:
            offered.setdefault(name, []).append(version)
    bound = [name for name, rule in wanted.items() if rule]
    upstream = _together(wanted, bound, installed, offered)
    found: dict[str, str] = {}
    for name, rule in wanted.items():
        if not rule and name in installed:
            found[name] = installed[name]
            continue
        fitting = [item for item in offered.get(name, []) if not rule or satisfies(item, upstream)]
        if not fitting:
            there = ", ".join(list(dict.fromkeys(offered.get(name, [])))[:20]) or "none"
            which = upstream if rule else "any version"
            raise NotInstallable(f"package {name} is not to be had at {which}; the repositories have {there}")
        found[name] = fitting[0]
    for name, version in found.items():
        if _NAME.fullmatch(name) is None or _DEB_VERSION.fullmatch(version) is None:
            raise NotInstallable(f"the repository offers {name!r} at {version!r}, which is no package's version")
    return found


def _together(
    wanted: Mapping[str, str | None], bound: Sequence[str], installed: Mapping[str, str],
    offered: Mapping[str, Sequence[str]],
) -> str:  # fmt: skip
    """Return the upstream version for all that have a rule; the rule itself where there is none to be found."""
    there = [installed[name] for name in bound if name in installed and satisfies(installed[name], wanted[name])]
    if there:
        return max((versions.upstream(item) for item in there), key=versions.parsed)
    common: set[str] | None = None
    for name in bound:
        fitting = {versions.upstream(item) for item in offered.get(name, []) if satisfies(item, wanted[name])}
        common = fitting if common is None else common & fitting
    return max(common, key=versions.parsed) if common else str(wanted[bound[0]] if bound else "")


def pin_text(upstream: str) -> str:
    """Return apt preferences that let every package of the driver come at one upstream version, for one command."""
    return f"Package: {' '.join(GLOBS)}\nPin: version {upstream}*\nPin-Priority: {PRIORITY}\n"


@dataclass(frozen=True)
class Simulation(Reading):
    """Hold what `apt-get -s install` says: (name, old or None, new) that would come, (name, old) that would go.

    `errors` are apt's own words where it would refuse, dependencies that it cannot satisfy first.
    """

    comes: tuple[tuple[str, str | None, str], ...]
    goes: tuple[tuple[str, str], ...]
    errors: tuple[str, ...] = ()


_COMES = re.compile(r"Inst (?P<name>\S+) (?:\[(?P<old>[^\]\s]+)\] )?\((?P<new>\S+)[^)]*\).*")
_GOES = re.compile(r"(?:Remv|Purg) (?P<name>\S+)(?: \[(?P<old>[^\]\s]+)\])?.*")


def parse_simulation(lines: list[str]) -> Simulation:
    """Parse `status=EXIT CODE` and `line=WHAT APT SAID` lines; raise ParseError where apt's words are not its usual."""
    status = values(lines).get("status", "")
    if not status.isdigit():
        raise ParseError("apt-get -s gave no exit status")
    comes, goes, errors = [], [], []
    for line in repeated(lines, "line"):
        if line.startswith("Inst "):
            match = _COMES.fullmatch(line)
            if match is None:
                raise ParseError(f"not a line of apt-get -s: {line[:120]!r}")
            comes.append((_unqualified(match["name"]), match["old"], match["new"]))
        elif line.startswith(("Remv ", "Purg ")):
            match = _GOES.fullmatch(line)
            if match is None:
                raise ParseError(f"not a line of apt-get -s: {line[:120]!r}")
            goes.append((_unqualified(match["name"]), match["old"] or ""))
        elif line.startswith("E: ") or "Depends: " in line:
            errors.append(line.removeprefix("E: "))
    if status != "0" and not errors:
        errors = [line for line in repeated(lines, "line") if line][-3:] or [f"it exits {status}"]
    return Simulation(tuple(comes), tuple(goes), tuple(errors) if status != "0" else ())


def _unqualified(name: str) -> str:
    return name.partition(":")[0]


def gate(simulation: Simulation, wanted: Mapping[str, str], branch: str, branch_change: bool) -> tuple[str, str] | None:
    """Judge what apt would do after the lists were refreshed; return (reason, remedy), None where it may go on.

    + wanted: name -> package version that was resolved
    + branch: the driver's branch that is asked for
    + branch_change: whether the settings allow packages of another branch to be replaced
    """
    if simulation.errors:
        if told := explained(simulation.errors):
            # The last one is the deepest: what the others need.
            return f"apt would refuse: {'; '.join(item.cause for item in told)}", told[-1].remedy
        return (
            f"apt would refuse: {'; '.join(simulation.errors)[:600]}",
            "look at `apt-get -s install` of the same packages on the node, and at its repositories and preferences",
        )
    for name, old, new in simulation.comes:
        found = driver_branch(new) if belongs(name) else None
        if found is not None and found != branch:
            return (
                f"package {name} would come at {new}, which is not of branch {branch}: a package that is asked for is "
                "a transitional one, or the repository no longer has all of that branch",
                f"set driver.branch = '{found}' (see driver.allow_branch_change), ask for another version, or use a "
                "repository that still has the branch",
            )
        if name in wanted and new != wanted[name]:
            return (
                f"package {name} would come at {new} and not at {wanted[name]}",
                "look at `apt-cache policy` and /etc/apt/preferences.d on the node",
            )
        before = driver_branch(old) if old and belongs(name) else None
        if before is not None and before != branch and not branch_change:
            return (
                f"package {name} {old} would be moved to {new}, which is another branch",
                f"set driver.allow_branch_change = True for this change, or driver.branch = '{before}'",
            )
    coming = {_role(name) for name, _, _ in simulation.comes if belongs(name)}
    for name, old in simulation.goes:
        if not belongs(name):
            return (
                f"apt would remove {name} {old}, which is no part of the driver",
                f"look at `apt-get -s install` on the node; remove {name} yourself if it is to go",
            )
        if _role(name) not in coming:
            return (
                f"apt would remove {name} {old}, and nothing comes in its place",
                f"look at `apt-get -s install` on the node; remove {name} yourself if it is to go",
            )
    return None


def _role(name: str) -> str:
    """Return what a package is for, whatever its branch and flavour: nvidia-kernel-open-dkms -> nvidia-kernel-dkms."""
    if re.fullmatch(r"(nvidia-open|cuda-drivers|nvidia-driver)(-\d{3})?(-open)?", name):
        return "driver"
    return re.sub(r"-(\d{3}(\.\d+)*|open|server)(?=-|$)", "", name)


def parse_driver_packages(lines: list[str]) -> DriverPackages:
    """Parse the probe of facts.driver_packages.DriverPackages; dpkg must have told of itself."""
    found = values(lines)
    if found.get("dpkg") != "installed":
        raise ParseError("dpkg-query gave no answer")
    packages: dict[str, str] = {}
    held = set()
    for line in repeated(lines, "package"):
        words = line.split(" ")
        if len(words) != 3 or _NAME.fullmatch(words[1]) is None or _DEB_VERSION.fullmatch(words[2]) is None:
            raise ParseError(f"not a package: {line[:80]!r}")
        want, name, version = words
        packages[name] = version
        if want == "hold":
            held.add(name)
    return DriverPackages(
        packages=tuple(sorted(packages.items())),
        held=tuple(sorted(held)),
        interrupted=found.get("interrupted") == "yes",
        preferences=decoded(found, "preferences"),
        unattended=decoded(found, "unattended"),
    )


@dataclass(frozen=True)
class Offers(Reading):
    """Hold which versions the repositories have: (name, version), newest first."""

    available: tuple[tuple[str, str], ...]


def parse_offers(lines: list[str]) -> Offers:
    """Parse `available=NAME VERSION` lines; apt-cache must have told of its end."""
    if values(lines).get("apt") != "0":
        raise ParseError("apt-cache gave no answer")
    pairs = (line.partition(" ")[::2] for line in repeated(lines, "available"))
    return Offers(tuple((name, version) for name, version in pairs if version))
