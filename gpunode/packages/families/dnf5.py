"""dnf 5: its versionlock.toml, and what it says that it would do; what rpm does alike is in rpm.py."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.structured_text import TextError, load_toml
from gpunode.base.toml_edit import ConfigurationRefused, edited
from gpunode.packages.driver_packages.names import is_package
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families import dnf, rpm

LOCKLIST = "/etc/dnf/versionlock.toml"
# dnf 5 passes over a list that does not say this. source: libdnf5/rpm/versionlock_config.cpp (5.4)
_FORMAT = "1.0"
# The comment of an entry of ours begins so, and ends in its group.
_MARK = "gpunode: locked with the"
_HEAD = f'version = "{_FORMAT}"\n'
_LAYOUT = (
    f"{LOCKLIST} is in a layout that no entry can be added to: have dnf write it anew (`dnf5 versionlock add NAME`, "
    "for a package that you lock), or remove it"
)
_TABLE = re.compile(r"^(?=[ \t]*\[\[[ \t]*packages[ \t]*\]\])", re.MULTILINE)


@dataclass(frozen=True)
class LockedPackages(dnf.LockedPackages):
    """As for dnf; `locklist` is None where there is no list."""

    @property
    def pinned(self) -> Mapping[str, str]:
        """Return name -> version of our entries of versionlock's list."""
        return pinned(self.locklist or "")


def pinned(text: str) -> dict[str, str]:
    """Return name -> version of what our entries of versionlock's list lock with the driver; a broken list has none."""
    try:
        entries = list(_entries(_parsed(text), f"{_MARK} driver"))
    except ValueError:
        return {}
    found = {name: rpm.without_epoch_zero(version) for name, version in entries}
    return {name: version for name, version in found.items() if is_package(name, version)}


def locked(text: str, keep: Mapping[str, str], group: str = "driver", every: Iterable[tuple[str, str]] = ()) -> str:
    """Return versionlock's list with our entries of a group naming `keep` (name -> version), none where it is empty.

    Of a name with entries dnf sees those versions and no others: each that is installed needs its own. dnf's own
    `versionlock add` writes the file anew, in its own layout and without comments: ours are known by their `comment`,
    and stay as they are where they say what they should. A list of nothing is an empty text.

    + group: driver or toolkit
    + every: (name, version) of what is there at several versions; names that are not kept do not count

    Raises ValueError where the text is no TOML, or none that an entry can be added to.
    """
    mark = f"{_MARK} {group}"
    found = _parsed(text)
    pairs = {*keep.items(), *((name, version) for name, version in every if name in keep)}
    desired = sorted((name, rpm.with_epoch(version)) for name, version in pairs)
    is_read = not text or not desired or found.get("version") == _FORMAT
    if is_read and sorted(_entries(found, mark)) == desired:
        return text
    # dnf takes either layout; a header behind a list in brackets would be no TOML.
    change = _listed if "packages" in found and not _TABLE.search(text) else _tabled
    try:
        new = change(text if "version" in found else _HEAD + (f"\n{text}" if text else ""), desired, mark)
        now = load_toml(new) if new else {}
    except ValueError as error:
        raise ValueError(_LAYOUT) from error
    if now in ({"version": _FORMAT}, {"version": _FORMAT, "packages": []}) and "#" not in new:
        return ""
    if sorted(_entries(now, mark)) != desired or now.get("version") != _FORMAT:
        raise ValueError(_LAYOUT)
    return new


def _tabled(text: str, desired: Sequence[tuple[str, str]], mark: str) -> str:
    """Return a list of tables, as dnf writes it, with our entries at its end."""
    head, *tables = _TABLE.split(text)
    kept = [_rest(table) if _comment(table) == mark else table for table in tables]
    return head + "".join(kept) + "".join(_entry(name, evr, mark) for name, evr in desired)


def _listed(text: str, desired: Sequence[tuple[str, str]], mark: str) -> str:
    """Return a list in brackets (`packages = [{name = …}]`, or the empty one that dnf leaves) with our entries."""

    def edit(table: MutableMapping[str, Any]) -> None:
        packages = table["packages"]
        if not isinstance(packages, list):
            raise ConfigurationRefused("'packages' is no list", "packages")
        for at in reversed(range(len(packages))):
            if isinstance(packages[at], dict) and packages[at].get("comment") == mark:
                del packages[at]
        for name, evr in desired:
            condition = {"key": "evr", "comparator": "=", "value": evr}
            packages.append({"name": name, "comment": mark, "conditions": [condition]})

    return edited(text, edit)


def _parsed(text: str) -> dict[str, Any]:
    try:
        return load_toml(text)
    except TextError as error:
        raise ValueError(f"{LOCKLIST} cannot be read ({error}), by dnf either: mend or remove it") from error


def _entries(found: Mapping[str, Any], mark: str) -> Iterator[tuple[str, str]]:
    """Yield (name, EPOCH:VERSION-RELEASE) of our entries; one that gpunode did not write so has no version."""
    tables = found.get("packages")
    for entry in tables if isinstance(tables, list) else ():
        if not isinstance(entry, dict) or entry.get("comment") != mark:
            continue
        conditions = entry.get("conditions")
        match conditions:
            case [{"key": "evr", "comparator": "=", "value": str(value)}]:
                yield str(entry.get("name")), rpm.with_epoch(value)
            case _:
                yield str(entry.get("name")), ""


def _comment(table: str) -> str | None:
    entry = load_toml(table)["packages"][0]
    return entry.get("comment") if isinstance(entry, dict) else None


def _rest(table: str) -> str:
    """Return what stands behind an entry and is not its own: comments of whoever wrote what follows."""
    lines = table.splitlines(keepends=True)
    while lines and not (lines[0].startswith("#") and not any(line.strip() and line[0] != "#" for line in lines)):
        lines.pop(0)
    return "".join(lines)


def _entry(name: str, evr: str, mark: str) -> str:
    condition = f'[[packages.conditions]]\nkey = "evr"\ncomparator = "="\nvalue = "{evr}"\n'
    return f'\n[[packages]]\nname = "{name}"\ncomment = "{mark}"\n\n{condition}'


def parse_driver_packages(lines: list[str]) -> LockedPackages:
    """Parse `package=WANT NAME VERSION` lines, and versionlock's list."""
    packages, held, twice, every = rpm.parse_driver(lines)
    locklist = decoded(values(lines), "locklist")
    return LockedPackages(packages, held, twice, locklist=locklist, every=every)


_SUMMARY = "Transaction Summary"
_REFUSED = "Failed to resolve the transaction"
# What follows are options to try, or what is there already: no reason.
_NO_REASONS = ("You can try", "  --", "Package ", "Nothing to do", "Operation aborted")


def parse_simulation(lines: list[str]) -> Simulation:
    """Parse dnf's table of a transaction that it was told to refuse (`line=`), or why there is none.

    Beside it stand `installed=NAME VERSION` lines and, for what was to come, `asked=NAME VERSION`. An entry begins with
    one space; below one that comes stands `replacing`, of the same name or of another one, which goes.
    """
    said = list(repeated(lines, "line"))
    return dnf.simulated(lines, _rows(said), _reasons(said), "dnf --assumeno do")


def _rows(said: Iterable[str]) -> Iterator[dnf.Row]:
    """Yield each row between a table's head and its summary."""
    section, by = "", ""
    for line in said:
        if line.startswith(_SUMMARY):
            return
        if dnf.SECTION.fullmatch(line.strip()) and not line.startswith(" "):
            section = line.strip().removesuffix(":")
        elif section and re.match(r" {2,}replacing ", line):
            yield section, by, line.split()[1:]
        # Of what only gets another reason to be there nothing comes or goes.
        elif section.startswith((*dnf.COMES, dnf.GOES)) and re.match(r" \S", line):
            by = line.split()[0]
            yield section, None, line.split()


def _reasons(said: list[str]) -> list[str]:
    """Return why dnf 5 resolves nothing, in its words."""
    begins = next((number for number, line in enumerate(said) if line.startswith(_REFUSED)), None)
    if begins is None:
        return []
    told = [line.strip() for line in said[begins + 1 :] if line.strip() and not line.startswith(_NO_REASONS)]
    return told or [_REFUSED]
