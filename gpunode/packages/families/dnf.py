"""dnf and rpm: versionlock's list, repositories, and what dnf says that it would do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.names import belongs, is_package, pairs
from gpunode.packages.driver_packages.simulation import Simulation, exit_status
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
    return LockedPackages(packages, held, twice, locklist=text, every=every)


def parse_offers(lines: list[str]) -> Offers:
    """Parse `available=NAME VERSION` lines, in any order; dnf must have told of its end."""
    if values(lines).get("dnf") != "0":
        raise ParseError("dnf gave no answer")
    return rpm.newest_first(pairs(repeated(lines, "available")))


# Section, the package that replaces the row's (None: none does), and the row's words.
Row = tuple[str, str | None, list[str]]
SECTION = re.compile(r"[A-Z][A-Za-z ]+:")
COMES = ("Installing", "Upgrading", "Downgrading", "Reinstalling")
GOES = "Removing"
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
    said = list(repeated(lines, "line"))
    errors = [line.removeprefix("Error: ") for line in _problems(said)]
    found = simulated(lines, _rows(said), errors, "dnf --assumeno install")
    elsewhere = [name for line in found.errors for name in _ELSEWHERE if f"provides {name} " in line]
    return replace(found, remedy=_ELSEWHERE[elsewhere[0]] if elsewhere else None)


def simulated(lines: list[str], rows: Iterable[Row], errors: list[str], trial: str) -> Simulation:
    """Return what dnf would do by the rows of its table, or why not: `errors` in its words."""
    exit_status(lines, "dnf")
    actual = dict(pairs(repeated(lines, "installed")))
    comes: dict[str, tuple[str, str | None, str]] = {}
    goes: dict[str, tuple[str, str]] = {}
    replaced: list[str] = []
    for section, by, words in rows:
        # Module streams, which dependencies have, too, are listed in rows of their own kind.
        if by is None and not section.startswith((*COMES, GOES)):
            continue
        if len(words) < 3:
            raise ParseError(f"not a row of dnf's table: {' '.join(words)[:120]!r}")
        name, version = words[0], rpm.without_epoch_zero(words[2])
        if by is None and section.startswith(COMES):
            comes[name] = (name, actual.get(name), version)
        elif by != name:
            goes[name] = (name, version)
            replaced += [name] if by and belongs(by) else []
    # dnf's exit status says nothing where it was told to answer no.
    if (silent := rpm.passed_over(lines, actual, comes)) and not errors:
        errors = [f"it says nothing of {', '.join(silent)}", *[x for x in repeated(lines, "line") if x.strip()][-3:]]
    going = tuple(goes.values())
    return Simulation(tuple(comes.values()), going, tuple(errors), "dnf", trial, replaced=tuple(replaced))


def _rows(said: Iterable[str]) -> list[Row]:
    """Return each row between a table's head and its summary."""
    rows: list[Row] = []
    section, by = "", ""
    for line in said:
        if line.startswith("Transaction Summary"):
            section = ""
        elif SECTION.fullmatch(line.strip()) and not line.startswith(" "):
            section = line.strip().removesuffix(":")
        elif section and re.match(r"    +replacing +\S+ +\S", line):
            name = line.split()[1].rpartition(".")[0]
            rows.append((section, by, [name, "-", line.split()[2]]))
        elif section and re.match(r" \S", line):
            rows.append((section, None, line.split()))
            by = line.split()[0]
        elif section and re.match(r"  +\S", line) and rows:
            rows[-1][2].extend(line.split())
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
