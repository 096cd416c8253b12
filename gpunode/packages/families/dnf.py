"""dnf and rpm: versionlock's list, repositories, and what dnf says that it would do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.names import belongs, is_package, pairs
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families import rpm

LOCKLIST = "/etc/dnf/plugins/versionlock.list"
_BEGIN, _END = "# gpunode: locked with the", "# gpunode: end"


@dataclass(frozen=True)
class LockedPackages(DriverPackages):
    """Hold the driver's packages by rpm; `locklist` is versionlock's whole list, None without the plugin.

    `every` are (name, version) of what may be there several times, side by side: kernels.
    """

    locklist: str | None = None
    every: tuple[tuple[str, str], ...] = ()

    @property
    def pinned(self) -> Mapping[str, str]:
        """Return name -> version of our part of versionlock's list."""
        return pinned(self.locklist or "")


def pinned(text: str) -> dict[str, str]:
    """Return name -> version of what our part of versionlock's list locks with the driver."""
    part = re.search(rf"^{re.escape(_BEGIN)} driver\n(.*?)^{re.escape(_END)}$", text, re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    for entry in part[1].splitlines() if part is not None else ():
        name, _, rest = entry.removesuffix(".*").rpartition("-")
        name, _, version = name.rpartition("-")
        version = rpm.without_epoch_zero(f"{version}-{rest}")
        if is_package(name, version):
            found[name] = version
    return found


def locked(text: str, keep: Mapping[str, str], group: str = "driver", every: Iterable[tuple[str, str]] = ()) -> str:
    """Return versionlock's list with our part of a group naming `keep` (name -> version), none where it is empty.

    Of a name with entries dnf sees those versions and no others: each that is installed needs its own.

    + group: driver or toolkit
    + every: (name, version) of what is there at several versions; names that are not kept do not count
    """
    begin = f"{_BEGIN} {group}"
    rest = re.sub(rf"^{re.escape(begin)}\n.*?^{re.escape(_END)}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    if not keep:
        return rest
    pairs = {*keep.items(), *((name, version) for name, version in every if name in keep)}
    entries = "".join(f"{name}-{rpm.with_epoch(version)}.*\n" for name, version in sorted(pairs))
    glue = "" if not rest or rest.endswith("\n") else "\n"
    return f"{rest}{glue}{begin}\n{entries}{_END}\n"


def nevra(name: str, version: str) -> str:
    """Return what dnf takes for a package at a version."""
    return f"{name}-{rpm.with_epoch(version)}"


def parse_driver_packages(lines: list[str]) -> LockedPackages:
    """Parse `package=WANT NAME VERSION` lines, and versionlock's list."""
    found = values(lines)
    packages, held, twice, every = rpm.parse_driver(lines)
    text = (decoded(found, "locklist") or "") if found.get("locking") == "yes" else None
    return LockedPackages(tuple(sorted(packages.items())), tuple(sorted(held)), twice, locklist=text, every=every)


def parse_offers(lines: list[str]) -> Offers:
    """Parse `available=NAME VERSION` lines, in any order; dnf must have told of its end."""
    if values(lines).get("dnf") != "0":
        raise ParseError("dnf gave no answer")
    return rpm.newest_first(pairs(repeated(lines, "available")))


SECTION = re.compile(r"[A-Z][A-Za-z ]+:")
COMES = ("Installing", "Upgrading", "Downgrading", "Reinstalling")
_REPLACED = "Replaced by "
_GOES = ("Removing", _REPLACED)
# The last is of a foreign repository that never could be read: dnf passes over it.
_NOT_ERRORS = ("Operation aborted", "Nothing to do", "Cache-only enabled but no cache for ")
# What NVIDIA's packages need and RHEL has not. source: driver installation guide, RHEL chapter
_ELSEWHERE = {
    "dkms": "enable a repository that has dkms on the node (on RHEL and its kin EPEL): NVIDIA's packages need it; run "
    "again then"
}


def parse_simulation(lines: list[str]) -> Simulation:
    """Parse dnf's table of a transaction that it was told to refuse (`line=`).

    Beside it stand `installed=NAME VERSION` lines and, for what was to come, `asked=NAME VERSION`.
    Long rows are wrapped: an entry begins with one space, what goes on with several.
    """
    if not values(lines).get("status", "").isdecimal():
        raise ParseError("dnf gave no exit status")
    actual = dict(pairs(repeated(lines, "installed")))
    comes: dict[str, tuple[str, str | None, str]] = {}
    goes: dict[str, tuple[str, str]] = {}
    replaced: list[str] = []
    said = list(repeated(lines, "line"))
    for section, words in _rows(said):
        # Module streams, which dependencies have, too, stand there in rows of their own kind.
        if not section.startswith((*COMES, *_GOES)):
            continue
        if len(words) < 3:
            raise ParseError(f"not a row of dnf's table: {' '.join(words)[:120]!r}")
        name, version = words[0], rpm.without_epoch_zero(words[2])
        if section.startswith(COMES):
            comes[name] = (name, actual.get(name), version)
        elif section.startswith(_GOES):
            goes[name] = (name, version)
            if section.startswith(_REPLACED) and belongs(section.removeprefix(_REPLACED)):
                replaced.append(name)
    errors = [line.removeprefix("Error: ") for line in _problems(said)]
    # dnf's exit status says nothing where it was told to answer no.
    if (silent := rpm.passed_over(lines, actual, comes)) and not errors:
        errors = [f"it says nothing of {', '.join(silent)}", *[line for line in said if line.strip()][-3:]]
    elsewhere = [name for line in errors for name in _ELSEWHERE if f"provides {name} " in line]
    return Simulation(
        tuple(comes.values()),
        tuple(goes.values()),
        tuple(errors),
        manager="dnf",
        trial="dnf --assumeno install",
        replaced=tuple(replaced),
        remedy=_ELSEWHERE[elsewhere[0]] if elsewhere else None,
    )


def _rows(said: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return (section, words) of each row between a table's head and its summary."""
    rows: list[tuple[str, list[str]]] = []
    section, by = "", ""
    for line in said:
        if line.startswith("Transaction Summary"):
            section = ""
        elif SECTION.fullmatch(line.strip()) and not line.startswith(" "):
            section = line.strip().removesuffix(":")
        elif section and re.match(r"    +replacing +\S+ +\S", line):
            name = line.split()[1].rpartition(".")[0]
            rows.append((f"{_REPLACED}{by}", [name, "-", line.split()[2]]))
        elif section and re.match(r" \S", line):
            rows.append((section, line.split()))
            by = line.split()[0]
        elif section and re.match(r"  +\S", line) and rows:
            rows[-1][1].extend(line.split())
    return rows


def _problems(said: list[str]) -> list[str]:
    found = [line for line in said if re.match(r"Error: \S", line) and not line[7:].startswith(_NOT_ERRORS)]
    # What cannot be satisfied: dnf's shell tells it without the word Error.
    if any(line.startswith(" Problem") for line in said):
        found += [line.strip() for line in said if re.match(r" +(Problem|- )", line)]
    return found


def repository_text(label: str, uri: str, key: str, packages_signed: bool, proxy: str | None = None) -> str:
    """Return a .repo file for one repository whose metadata must be signed by the key in the file `key`."""
    lines = [
        "# Written by gpunode",
        f"[gpunode-{label}]",
        f"name={label} (gpunode)",
        f"baseurl={uri.replace('$(ARCH)', '$basearch')}",
        "enabled=1",
        f"gpgcheck={int(packages_signed)}",
        "repo_gpgcheck=1",
        f"gpgkey=file://{key}",
        "skip_if_unavailable=0",
        *([f"proxy={proxy}"] if proxy else []),
    ]
    return "\n".join(lines) + "\n"
