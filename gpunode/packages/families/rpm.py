"""rpm, beneath dnf and zypper alike: its versions, what it has installed, and the .repo files of both."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterable, Mapping

from gpunode.base import versions
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError
from gpunode.packages.apt_trust import Rewrite
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.names import pairs, wanted
from gpunode.packages.installed_packages import InstalledPackages

_OFF = frozenset({"0", "no", "false", "off"})
# Several of these are there side by side, one for each kernel.
_PER_KERNEL = re.compile(r"kernel(\d+\.\d+)?(-.*)?|.*-kmp-.*")


def with_epoch(version: str) -> str:
    """Return a version with its epoch, which rpm leaves out where it is 0."""
    return version if ":" in version else f"0:{version}"


def without_epoch_zero(version: str) -> str:
    """Return a version as rpm prints it: dnf writes the epoch of every package, rpm that of those that have one."""
    return version.removeprefix("0:")


def passed_over(
    lines: list[str], installed: Mapping[str, str], comes: Mapping[str, tuple[str, str | None, str]]
) -> list[str]:
    """Return the names of `asked=NAME VERSION` lines that are not installed at that version, nor would come at it.

    comes: name -> (name, former version, version)
    """
    desired = pairs(repeated(lines, "asked"))
    to_be = {name: row[2] for name, row in comes.items()}
    return [name for name, version in desired if version not in (installed.get(name), to_be.get(name))]


def parse_installed(lines: list[str]) -> InstalledPackages:
    """Parse `package=NAME VERSION` lines; rpm must have told of its end, else its silence says nothing."""
    if values(lines).get("rpm") != "0":
        raise ParseError("rpm gave no answer")
    return InstalledPackages(tuple(sorted(pairs(repeated(lines, "package")))), False)


def parse_driver(
    lines: list[str],
) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...], bool, tuple[tuple[str, str], ...]]:
    """Parse `package=WANT NAME VERSION` lines: (name, version), names that are held, and whether any is there twice.

    Last come all (name, version) of those that may be there several times, kernels above all.
    """
    if values(lines).get("rpm") != "0":
        raise ParseError("rpm gave no answer")
    found, held = wanted(lines)
    packages: dict[str, str] = {}
    twice = False
    for name, version in found:
        # Of anything but a kernel's two versions are what an interruption left; one version twice is two architectures.
        twice = twice or (packages.get(name, version) != version and _PER_KERNEL.fullmatch(name) is None)
        packages[name] = version
    every = {(name, version) for name, version in found if _PER_KERNEL.fullmatch(name)}
    return tuple(sorted(packages.items())), held, twice, tuple(sorted(every))


def newest_first(found: Iterable[tuple[str, str]]) -> Offers:
    """Return what repositories offer, each once and newest first, in whatever order it was listed."""
    plain = [(name, without_epoch_zero(version)) for name, version in found]
    return Offers(tuple(sorted(dict.fromkeys(plain), key=lambda pair: _age(pair[1]), reverse=True)))


def _age(version: str) -> tuple[object, ...]:
    # The release's numbers count only among packages of one upstream version.
    release = [int(number) for number in re.findall(r"\d+", version.partition("-")[2])]
    try:
        return True, versions.parsed(version), release
    except versions.VersionError:
        # Of what is numbered in no way that is known, anything else is newer.
        return False, version, release


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
        # What stands behind the question mark is how zypper is to get there.
        place = address.partition("://")[2].partition("?")[0]
        return place.replace("$(ARCH)", "$basearch").replace("$basearch", "x86_64").rstrip("/")

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
