"""Debian packages, apt's repositories and sources on a node, and the keys that it trusts for every repository.

The distribution's own archive is known by the Origin of its Release files, since its address is a mirror's; it is
trusted as the node trusts it, for apt takes no second word on one archive.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from gpunode.base.probe_output import decoded, files, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.terminal import CREDENTIALS
from gpunode.packages.apt_trust import NO, ONE_LINE, fields
from gpunode.packages.installed_packages import InstalledPackages


@dataclass(frozen=True)
class AptSources(Reading):
    """Hold what preflight asks of apt, empty on a node without apt; and of pacman.

    `architecture` is dpkg's. `sources` are (path, text) of lists that name NVIDIA or CUDA and are not gpunode's own,
    `trusted` (path, fingerprints of primary keys) of world-trusted keyrings, `origins` those of the archives that apt
    reads, where it has fetched their lists. `pacman_repositories` are (name, the levels of trust that pacman-conf
    prints). `errors` say why any package manager cannot read its sources or configuration.
    """

    architecture: str | None = None
    sources: tuple[tuple[str, str], ...] = ()
    trusted: tuple[tuple[str, tuple[str, ...]], ...] = ()
    origins: tuple[str, ...] = ()
    pacman_repositories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    errors: tuple[str, ...] = ()


def parse_apt_sources(lines: list[str]) -> AptSources:
    """Parse `architecture=`, `source=PATH BASE64`, `trusted=FINGERPRINT PATH`, `origin=` and `error=` lines."""
    sources = [(path, CREDENTIALS.sub("://", text)) for path, text in files(lines, "source")]
    levels = (
        (name, tuple(rest)) for name, *rest in (line.split() for line in repeated(lines, "siglevel") if line.strip())
    )
    return AptSources(
        values(lines).get("architecture"),
        tuple(sources),
        _trusted(lines),
        tuple(sorted(set(repeated(lines, "origin")))),
        tuple(levels),
        tuple(CREDENTIALS.sub("://", line) for line in dict.fromkeys(repeated(lines, "error"))),
    )


def _trusted(lines: list[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Parse `trusted=FINGERPRINT PATH` lines into (path, fingerprints) of each keyring."""
    keyrings: dict[str, tuple[str, ...]] = {}
    for line in repeated(lines, "trusted"):
        fingerprint, _, path = line.partition(" ")
        if not path:
            raise ParseError(f"not a trusted key: {line[:80]!r}")
        keyrings[path] = (*keyrings.get(path, ()), fingerprint)
    return tuple(keyrings.items())


def parse_deb_packages(lines: list[str]) -> InstalledPackages:
    """Parse `package=NAME VERSION` lines; dpkg must have told of itself, else its silence says nothing."""
    if values(lines).get("dpkg") != "installed":
        raise ParseError("dpkg-query gave no answer")
    packages = (line.partition(" ")[::2] for line in repeated(lines, "package"))
    return InstalledPackages(
        tuple(sorted((name, version) for name, version in packages)), values(lines).get("interrupted") == "yes"
    )


@dataclass(frozen=True)
class AptRepository(Reading):
    """Hold an apt repository of ours: key fingerprints in its keyring, the text of its source, the refreshed state.

    `permissions` are mode, owner and group of the keyring; None where there is none. `refreshed` is the digest of
    source and key for which the lists were last fetched; None where they never were.
    `others` are (path, text) of other lists that mention its address, `trusted` (path, fingerprints) of world-trusted
    keyrings where one of them holds a key that is not to be trusted so. `architecture` is dpkg's.
    """

    fingerprints: tuple[str, ...]
    source: str | None
    digest: str | None
    refreshed: str | None
    architecture: str = ""
    others: tuple[tuple[str, str], ...] = ()
    trusted: tuple[tuple[str, tuple[str, ...]], ...] = ()
    permissions: str | None = None


_FINGERPRINT = re.compile(r"^[0-9A-F]{40}$")


def parse_apt_repository(lines: list[str]) -> AptRepository:
    """Parse what facts.packages.AptRepository prints.

    `fingerprint=`, `permissions=MODE OWNER:GROUP`, `source=` (base64), `digest=`, `refreshed=`, `architecture=`,
    `other=PATH BASE64` and `trusted=FINGERPRINT PATH` lines.
    """
    found = values(lines)
    fingerprints = tuple(repeated(lines, "fingerprint"))
    trusted = _trusted(lines)
    for fingerprint in (*fingerprints, *(key for _, keys in trusted for key in keys)):
        if not _FINGERPRINT.match(fingerprint):
            raise ParseError(f"not a key fingerprint: {fingerprint[:60]!r}")
    return AptRepository(
        fingerprints=fingerprints,
        source=decoded(found, "source"),
        digest=found.get("digest"),
        refreshed=found.get("refreshed"),
        architecture=found.get("architecture", ""),
        others=tuple(files(lines, "other")),
        trusted=trusted,
        permissions=found.get("permissions"),
    )


# Options of an entry that belong to the archive rather than to the entry: the same in every entry, or apt refuses all.
_OPTIONS = {
    "signed-by": "Signed-By",
    "trusted": "Trusted",
    "arch": "Architectures",
    "architectures": "Architectures",
    "check-valid-until": "Check-Valid-Until",
    "check-date": "Check-Date",
}
_OPTION = re.compile(r"([A-Za-z-]+)=(\S+)")


class ArchiveError(Exception):
    """Say why the archive cannot be given more components, and what a person has to do."""


@dataclass(frozen=True)
class Target(Reading):
    """Hold one index that apt reads: whose archive, where, and the file whose entry says so."""

    origin: str
    uri: str
    suite: str
    component: str
    file: str


@dataclass(frozen=True)
class AptArchive(Reading):
    """Hold what apt reads, the texts of the files that say so (path, text), and the text of our own file, if any.

    Targets that our own file brings are not among `targets`.
    """

    targets: tuple[Target, ...]
    files: tuple[tuple[str, str], ...]
    own: str | None = None

    def components(self, origin: str) -> frozenset[str]:
        """Return the components of an archive that the node's own entries enable; none where it is not known."""
        return frozenset(target.component for target in self.targets if target.origin == origin)


def parse_apt_archive(lines: list[str]) -> AptArchive:
    """Parse `target=ORIGIN|URI|SUITE|COMPONENT|FILE:STANZA`, `file=PATH BASE64` and `own=BASE64` lines."""
    found = values(lines)
    if found.get("apt") != "0":
        raise ParseError("apt-get indextargets gave no answer")
    targets = []
    for line in repeated(lines, "target"):
        words = line.split("|")
        if len(words) != 5:
            raise ParseError(f"not an index target: {line[:80]!r}")
        origin, uri, suite, component, entry = words
        targets.append(Target("" if "$(" in origin else origin, uri, suite, component, entry.rpartition(":")[0]))
    own = decoded(found, "own")
    mine = found.get("own_path")
    return AptArchive(tuple(target for target in targets if target.file != mine), tuple(files(lines)), own)


def more_components(archive: AptArchive, origin: str, desired: Collection[str]) -> str | None:
    """Return a deb822 source with the wanted components that the node's own entries lack; None where they lack none."""
    missing = [name for name in desired if name not in archive.components(origin)]
    return _text(archive, origin, missing) if missing else None


def whole_archive(archive: AptArchive, origin: str, desired: Collection[str]) -> str:
    """Return deb822 sources of one archive and of nothing else: the node's own components, and the wanted ones."""
    own = sorted(archive.components(origin))
    return _text(archive, origin, [*own, *(name for name in desired if name not in own)])


def _text(archive: AptArchive, origin: str, components: Collection[str]) -> str:
    places = dict.fromkeys(
        (target.uri, target.suite, target.file)
        for target in archive.targets
        if target.origin == origin and target.component == "main"
    )
    if not places:
        raise ArchiveError(
            f"apt reads no archive of the origin {origin} with the component main; see `apt-get indextargets`, and "
            "give the node a source of it"
        )
    files = dict(archive.files)
    stanzas = []
    for uri, suite, file in places:
        written, options = _entry(files.get(file, ""), file, uri, suite)
        lines = ["Types: deb", f"URIs: {written}", f"Suites: {suite}", f"Components: {' '.join(components)}"]
        stanzas.append("\n".join([*lines, *(f"{name}: {value}" for name, value in sorted(options.items())), ""]))
    return "# Written by gpunode\n" + "\n".join(stanzas)


def _entry(text: str, file: str, uri: str, suite: str) -> tuple[str, dict[str, str]]:
    """Return address (as it is written) and options (by their deb822 names) of the entry for an address and a suite."""
    desired = _normal(uri)
    if file.endswith(".sources"):
        for stanza in re.split(r"\n(?:[ \t]*\n)+", text):
            actual = fields(stanza)
            if actual.get("enabled", "yes").lower() in NO or suite not in actual.get("suites", "").split():
                continue
            for address in actual.get("uris", "").split():
                if _normal(address) == desired:
                    return address, _kept(actual, file)
    for line in text.splitlines():
        entry = ONE_LINE.match(line.strip())
        if entry and entry["type"] == "deb" and (_normal(entry["uri"]), entry["suite"]) == (desired, suite):
            return entry["uri"], _kept(
                {name.lower(): value for name, value in _OPTION.findall(entry["options"] or "")}, file
            )
    raise ArchiveError(
        f"the entry for {uri} {suite} is not found in {file}; add the components to it yourself, or mend the file"
    )


def _normal(uri: str) -> str:
    """Return what apt makes of an address: mirror+file:///x is mirror+file:/x/ to it."""
    return re.sub(r"^([a-z+-]+):/+", r"\1:/", uri).rstrip("/")


def _kept(found: dict[str, str], file: str) -> dict[str, str]:
    kept = {_OPTIONS[name]: value.replace(",", " ") for name, value in found.items() if name in _OPTIONS}
    if any("PGP" in value for value in kept.values()):
        raise ArchiveError(
            f"{file} holds the archive's key itself (Signed-By), where gpunode expects the path of a keyring; put "
            "the key into /usr/share/keyrings, and its path there"
        )
    return kept
