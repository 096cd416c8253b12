"""zypper and rpm: locks, repositories, what the repositories offer, and what zypper says that it would do."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from gpunode.base.explanations import zypper_meaning
from gpunode.base.folding import in_one_line
from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.names import belongs, driver_branch, pairs
from gpunode.packages.driver_packages.simulation import Simulation, exit_status
from gpunode.packages.families import rpm
from gpunode.packages.installed_packages import satisfies

LOCKS = "/etc/zypp/locks"
# Names of the packages whose locks are gpunode's: zypper's own file has no room for whose a lock is.
OURS = "/var/lib/gpunode/zypper-locks"

# The work was done: 100 to 103 tell of what remains, and of 106 and 107 the proof that follows says whether it matters.
GOOD = frozenset({0, 100, 101, 102, 103, 106, 107})
# How often it is asked what else comes at another version (`strays`, `named_too`): more than chains of requirements
# among the driver's packages are long.
ROUNDS = 6
# Of zypper's file an entry is a paragraph with an empty line before and behind it.
_ENTRY = re.compile(r"\n?(?:[^\n]+(?:\n|\Z))+\n?")


@dataclass(frozen=True)
class LockedPackages(DriverPackages):
    """Hold the driver's packages by rpm; `locks` is the text of zypper's file, `ours` are names that gpunode locked."""

    locks: str = ""
    ours: tuple[str, ...] = ()


def lock(name: str) -> str:
    """Return the entry of a package, as `zypper addlock` writes it."""
    return f"\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: {name}\n\n"


def locked(text: str, ours: Collection[str], keep: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """Return zypper's file with a lock of each of `keep`, and which of them are gpunode's.

    Entries of others stay to the byte; what one of them locks already needs none of ours. Of ours those go that are not
    in `keep`.
    """
    rest, theirs = [], []
    mine: dict[str, str] = {}
    for match in _ENTRY.finditer(text):
        patterns = _patterns(match[0])
        name = patterns[0] if len(patterns) == 1 else ""
        if name in ours and name not in mine:
            mine[name] = match[0]
        else:
            theirs += patterns
            rest.append(match[0])
    stay = [name for name in sorted(keep) if not any(fnmatch.fnmatchcase(name, pattern) for pattern in theirs)]
    kept = "".join(rest)
    glue = "" if not kept or kept.endswith("\n") or not stay else "\n"
    return kept + glue + "".join(lock(name) for name in stay), tuple(stay)


def _patterns(entry: str) -> list[str]:
    """Return the globs of the package names that an entry keeps as they are; none where it locks in part, or others."""
    fields: dict[str, list[str]] = {}
    for line in entry.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), []).append(value.strip())
    if fields.get("type", ["package"]) != ["package"] or {"version", "repo", "install_status", "query_string"} & set(
        fields
    ):
        return []
    kind = fields.get("match_type", ["substring"])
    names = fields.get("solvable_name", [])
    if kind in (["glob"], ["exact"]):
        return names
    return [f"*{name}*" for name in names] if kind == ["substring"] else []


def parse_driver_packages(lines: list[str]) -> LockedPackages:
    """Parse `package=WANT NAME VERSION` lines, zypper's file of locks, and the names of ours."""
    found = values(lines)
    packages, held, twice, _ = rpm.parse_driver(lines)
    return LockedPackages(
        packages,
        held,
        twice,
        locks=decoded(found, "locks") or "",
        ours=tuple((decoded(found, "ours") or "").split()),
    )


def _stream(lines: list[str]) -> ElementTree.Element:
    """Return what zypper printed as XML (`xml=`, base64)."""
    text = decoded(values(lines), "xml") or ""
    # What libraries and rpm's scripts print stands around it; nor may a declaration stand before.
    start, end = text.find("<stream>"), text.rfind("</stream>")
    if start < 0:
        raise ParseError(f"zypper's answer is no XML: {in_one_line(text)!r}")
    try:
        return ElementTree.fromstring(text[start : end + len("</stream>")] if end >= 0 else text[start:])
    except ElementTree.ParseError as error:
        raise ParseError(f"zypper's answer is no XML: {in_one_line(text)!r}") from error


def parse_offers(lines: list[str]) -> Offers:
    """Parse zypper's search; what is installed and in no repository is not offered."""
    code = exit_status(lines, "zypper")
    if code not in {*GOOD, 104}:
        raise ParseError(f"zypper gave no answer: {zypper_meaning(code)}")
    found = [
        f"{item.get('name')} {item.get('edition')}"
        for item in _stream(lines).iter("solvable")
        if item.get("kind") == "package" and not (item.get("repository") or "").startswith("(")
    ]
    return rpm.newest_first(pairs(found))


_COMES = frozenset(
    {
        "to-install",
        "to-upgrade",
        "to-downgrade",
        "to-reinstall",
        "to-change-arch",
        "to-change-vendor",
        "to-upgrade-change-arch",
        "to-downgrade-change-arch",
    }
)


def parse_simulation(lines: list[str]) -> Simulation:
    """Parse the summary of zypper's dry run, and its problems.

    Beside it stand `installed=NAME VERSION` lines and, for what was to come, `asked=NAME VERSION`.
    """
    code, stream = exit_status(lines, "zypper"), _stream(lines)
    actual = dict(pairs(repeated(lines, "installed")))
    comes: dict[str, tuple[str, str | None, str]] = {}
    goes: dict[str, tuple[str, str]] = {}
    for group in (group for summary in stream.iter("install-summary") for group in summary):
        if group.tag not in _COMES and group.tag != "to-remove":
            continue
        for item in (item for item in group.iter("solvable") if item.get("type") == "package"):
            ((name, version),) = pairs([f"{item.get('name')} {item.get('edition')}"])
            if group.tag == "to-remove":
                goes[name] = (name, version)
            else:
                comes[name] = (name, item.get("edition-old") or actual.get(name), version)
    errors = list(_problems(stream))
    if (silent := rpm.passed_over(lines, actual, comes)) and not errors:
        errors = [f"it says nothing of {', '.join(silent)}"]
    if code not in GOOD and not errors:
        errors = [zypper_meaning(code)]
    return Simulation(
        tuple(comes.values()), tuple(goes.values()), tuple(errors), manager="zypper", trial="zypper install --dry-run"
    )


def strays(upstream: str, simulation: Simulation) -> tuple[str, ...]:
    """Return the driver's packages that would come at another version than `upstream`.

    What NVIDIA's packages require they require at that version or newer, and zypper takes the newest that will do.
    """
    return tuple(
        name
        for name, _, version in simulation.comes
        if belongs(name) and driver_branch(version) is not None and not satisfies(version, upstream)
    )


def named_too(upstream: str, names: Collection[str], offers: Offers) -> dict[str, str]:
    """Return name -> package version of those of `names` that the repositories have at `upstream`, to be asked for."""
    found: dict[str, str] = {}
    for name, version in offers.available:
        if name in names and satisfies(version, upstream):
            found.setdefault(name, version)
    return found


def only_at(upstream: str, simulation: Simulation) -> Simulation:
    """Return the simulation with an error where a package of the driver would come at another version of its branch.

    It has neither pins nor module streams; another branch is the gate's affair.
    """
    names = strays(upstream, simulation)
    branch = driver_branch(upstream)
    others = [
        f"{name} {version}"
        for name, _, version in simulation.comes
        if name in names and driver_branch(version) == branch
    ]
    if simulation.errors or not others:
        return simulation
    said = (
        f"beside {upstream} zypper would bring {', '.join(others)}, which the repository does not have at that version"
    )
    return replace(simulation, errors=(said,))


def _problems(stream: ElementTree.Element) -> Iterator[str]:
    """Yield what zypper asks about and nobody answers, without its solutions; and what it calls an error."""
    for text in (item.findtext("description") or "" for item in stream.iter("prompt")):
        for block in re.split(r"^(?=Problem:)", text, flags=re.MULTILINE):
            said = re.split(r"^ +Solution \d", block, maxsplit=1, flags=re.MULTILINE)[0]
            if said.startswith("Problem:"):
                yield " ".join(said.split())
    for message in stream.iter("message"):
        if message.get("type") == "error":
            yield " ".join("".join(message.itertext()).split())


def repository_text(label: str, uri: str, key: str, packages_signed: bool, proxy: str | None = None) -> str:
    """Return a .repo file for one repository whose metadata must be signed by the key in the file `key`."""
    lines = [
        "# Written by gpunode",
        f"[gpunode-{label}]",
        f"name={label} (gpunode)",
        f"baseurl={_through(uri.replace('$(ARCH)', '$basearch'), proxy)}",
        "enabled=1",
        "autorefresh=1",
        "type=rpm-md",
        "gpgcheck=1",
        "repo_gpgcheck=1",
        f"pkg_gpgcheck={int(packages_signed)}",
        f"gpgkey=file://{key}",
    ]
    return "\n".join(lines) + "\n"


def _through(uri: str, proxy: str | None) -> str:
    """Return the address with zypp's options for a proxy, which no .repo file has keys of its own for."""
    if not proxy:
        return uri
    place = urlsplit(proxy)
    # No setting holds a user or a password.
    options = f"proxy={quote(place.hostname or '', safe='')}" + (f"&proxyport={place.port}" if place.port else "")
    return f"{uri}{'&' if '?' in uri else '?'}{options}"
