"""dnf and rpm: versionlock's list, repositories, and what dnf says that it would do."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpunode import versions
from gpunode.apt_trust import Rewrite
from gpunode.driver_packages.choice import Offers
from gpunode.driver_packages.installed import DriverPackages
from gpunode.driver_packages.names import DEB_VERSION, NAME
from gpunode.driver_packages.simulation import Simulation
from gpunode.packages import InstalledPackages
from gpunode.probe_output import decoded, repeated, values
from gpunode.reading import ParseError

LOCKLIST = "/etc/dnf/plugins/versionlock.list"
_BEGIN, _END = "# gpunode: locked with the", "# gpunode: end"
_OFF = frozenset({"0", "no", "false", "off"})


@dataclass(frozen=True)
class LockedPackages(DriverPackages):
    """Hold the driver's packages by rpm; `locklist` is versionlock's whole list, None without the plugin."""

    locklist: str | None = None


def locked(text: str, keep: Mapping[str, str], group: str = "driver") -> str:
    """Return versionlock's list with our part of a group naming `keep` (name -> version), none where it is empty.

    + group: driver or toolkit
    """
    begin = f"{_BEGIN} {group}"
    rest = re.sub(rf"^{re.escape(begin)}\n.*?^{re.escape(_END)}\n", "", text, flags=re.MULTILINE | re.DOTALL)
    if not keep:
        return rest
    entries = "".join(f"{name}-{_with_epoch(version)}.*\n" for name, version in sorted(keep.items()))
    glue = "" if not rest or rest.endswith("\n") else "\n"
    return f"{rest}{glue}{begin}\n{entries}{_END}\n"


def _with_epoch(version: str) -> str:
    return version if ":" in version else f"0:{version}"


def without_epoch_zero(version: str) -> str:
    """Return a version as rpm prints it: dnf writes the epoch of every package, rpm that of those that have one."""
    return version.removeprefix("0:")


def nevra(name: str, version: str) -> str:
    """Return what dnf takes for a package at a version."""
    return f"{name}-{_with_epoch(version)}"


def parse_installed(lines: list[str]) -> InstalledPackages:
    """Parse `package=NAME VERSION` lines; rpm must have told of its end, else its silence says nothing."""
    if values(lines).get("rpm") != "0":
        raise ParseError("rpm gave no answer")
    return InstalledPackages(tuple(sorted(_pairs(repeated(lines, "package")))), False)


def parse_driver_packages(lines: list[str]) -> LockedPackages:
    """Parse `package=WANT NAME VERSION` lines, and versionlock's list."""
    found = values(lines)
    if found.get("rpm") != "0":
        raise ParseError("rpm gave no answer")
    packages: dict[str, str] = {}
    held, twice = set(), False
    for line in repeated(lines, "package"):
        want, _, rest = line.partition(" ")
        ((name, version),) = _pairs([rest])
        # Several kernels are there side by side; of anything else two versions are what an interruption left.
        twice = twice or (name in packages and not name.startswith("kernel"))
        packages[name] = version
        if want == "hold":
            held.add(name)
    text = (decoded(found, "locklist") or "") if found.get("locking") == "yes" else None
    return LockedPackages(tuple(sorted(packages.items())), tuple(sorted(held)), twice, locklist=text)


def parse_offers(lines: list[str]) -> Offers:
    """Parse `available=NAME VERSION` lines, in any order; dnf must have told of its end."""
    if values(lines).get("dnf") != "0":
        raise ParseError("dnf gave no answer")
    pairs = [(name, without_epoch_zero(version)) for name, version in _pairs(repeated(lines, "available"))]
    return Offers(tuple(sorted(dict.fromkeys(pairs), key=lambda pair: _age(pair[1]), reverse=True)))


def _age(version: str) -> tuple[object, ...]:
    # dnf does not sort what it lists. The release's numbers count only among packages of one upstream version.
    release = version.partition("-")[2]
    return versions.parsed(version), [int(number) for number in re.findall(r"\d+", release)]


_SECTION = re.compile(r"[A-Z][A-Za-z ]+:")
_COMES = ("Installing", "Upgrading", "Downgrading", "Reinstalling")
_GOES = ("Removing",)
_NOT_ERRORS = ("Operation aborted", "Nothing to do")
# What NVIDIA's packages need and RHEL has not. source: driver installation guide, RHEL chapter
_ELSEWHERE = {"dkms": "enable EPEL on the node, which has dkms (NVIDIA's packages need it), and run again"}


def parse_simulation(lines: list[str]) -> Simulation:
    """Parse dnf's table of a transaction that it was told to refuse (`line=`).

    Beside it stand `installed=NAME VERSION` lines and, for what was to come, `asked=NAME VERSION`.
    Long rows are wrapped: an entry begins with one space, what goes on with several.
    """
    if not values(lines).get("status", "").isdigit():
        raise ParseError("dnf gave no exit status")
    there = dict(_pairs(repeated(lines, "installed")))
    comes: dict[str, tuple[str, str | None, str]] = {}
    goes: dict[str, tuple[str, str]] = {}
    said = list(repeated(lines, "line"))
    for section, words in _rows(said):
        if len(words) < 3:
            raise ParseError(f"not a row of dnf's table: {' '.join(words)[:120]!r}")
        name, version = words[0], without_epoch_zero(words[2])
        if section.startswith(_COMES):
            comes[name] = (name, there.get(name), version)
        elif section.startswith(_GOES):
            goes[name] = (name, version)
    errors = [line.removeprefix("Error: ") for line in _problems(said)]
    # dnf's exit status says nothing where it was told to answer no.
    silent = [
        name
        for name, version in _pairs(repeated(lines, "asked"))
        if version not in (there.get(name), *_to(comes, name))
    ]
    if silent and not errors:
        errors = [f"it says nothing of {', '.join(silent)}", *[line for line in said if line.strip()][-3:]]
    return Simulation(
        tuple(comes.values()), tuple(goes.values()), tuple(errors), manager="dnf", trial="dnf --assumeno install",
        remedy=next((_ELSEWHERE[name] for line in errors for name in _ELSEWHERE if f"provides {name} " in line), None),
    )  # fmt: skip


def _to(comes: Mapping[str, tuple[str, str | None, str]], name: str) -> tuple[str, ...]:
    return (comes[name][2],) if name in comes else ()


def _rows(said: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Return (section, words) of each row between a table's head and its summary."""
    rows: list[tuple[str, list[str]]] = []
    section = ""
    for line in said:
        if line.startswith("Transaction Summary"):
            section = ""
        elif _SECTION.fullmatch(line.strip()) and not line.startswith(" "):
            section = line.strip().removesuffix(":")
        elif section and re.match(r"    +replacing ", line):
            name = line.split()[1].rpartition(".")[0]
            rows.append(("Removing", [name, "-", line.split()[2]]))
        elif section and re.match(r" \S", line):
            rows.append((section, line.split()))
        elif section and re.match(r"  +\S", line) and rows:
            rows[-1][1].extend(line.split())
    return rows


def _problems(said: list[str]) -> list[str]:
    found = [line for line in said if re.match(r"Error: \S", line) and not line[7:].startswith(_NOT_ERRORS)]
    # What cannot be satisfied: dnf's shell tells it without the word Error.
    if any(line.startswith(" Problem") for line in said):
        found += [line.strip() for line in said if re.match(r" +(Problem|- )", line)]
    return found


def _pairs(lines: Iterable[str]) -> list[tuple[str, str]]:
    pairs = []
    for line in lines:
        name, _, version = line.partition(" ")
        if NAME.fullmatch(name) is None or DEB_VERSION.fullmatch(version) is None:
            raise ParseError(f"not a package: {line[:80]!r}")
        pairs.append((name, version))
    return pairs


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


def second_entries(uri: str, others: Iterable[tuple[str, str]]) -> tuple[Rewrite, ...]:
    """Return what switches off other enabled sections of .repo files (path, text) for the same repository.

    Raise ValueError where a file cannot be read as one.
    """
    steps = []
    for path, text in others:
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(text)
        except configparser.Error as error:
            raise ValueError(f"{path} is no .repo file ({str(error).splitlines()[0]}): mend or remove it") from error
        doubled = [
            section
            for section in parser.sections()
            if parser.get(section, "enabled", fallback="1").strip().lower() not in _OFF
            and any(_same(address, uri) for address in parser.get(section, "baseurl", fallback="").split())
        ]
        if doubled:
            new = _switched_off(text, set(doubled))
            steps.append(Rewrite(path, new, f"has another entry for {uri} ({', '.join(doubled)}), with other checks"))
    return tuple(steps)


def _same(one: str, other: str) -> bool:
    def plain(address: str) -> str:
        return address.partition("://")[2].replace("$(ARCH)", "$basearch").replace("$basearch", "x86_64").rstrip("/")

    return plain(one) == plain(other)


def _switched_off(text: str, sections: set[str]) -> str:
    lines, inside = [], False
    for line in text.splitlines():
        header = re.fullmatch(r"\[(.+)\]\s*", line)
        if header:
            inside = header[1] in sections
            lines.append(line)
            if inside:
                lines.append("enabled=0")
        elif not (inside and re.match(r"enabled\s*[=:]", line)):
            lines.append(line)
    return "\n".join(lines) + "\n"
