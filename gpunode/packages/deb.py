"""Debian packages, apt's repositories and sources on a node, and the keys that it trusts for every repository."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.terminal import CREDENTIALS
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
    sources = []
    for line in repeated(lines, "source"):
        path, _, text = line.partition(" ")
        sources.append((path, CREDENTIALS.sub("://", decoded({path: text}, path) or "")))
    keyrings: dict[str, tuple[str, ...]] = {}
    for line in repeated(lines, "trusted"):
        fingerprint, _, path = line.partition(" ")
        if not path:
            raise ParseError(f"not a trusted key: {line[:80]!r}")
        keyrings[path] = (*keyrings.get(path, ()), fingerprint)
    levels = ((name, tuple(rest)) for name, *rest in (line.split() for line in repeated(lines, "siglevel")))
    return AptSources(
        values(lines).get("architecture"),
        tuple(sources),
        tuple(keyrings.items()),
        tuple(sorted(set(repeated(lines, "origin")))),
        tuple(levels),
        tuple(CREDENTIALS.sub("://", line) for line in dict.fromkeys(repeated(lines, "error"))),
    )


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
    keyrings: dict[str, tuple[str, ...]] = {}
    for line in repeated(lines, "trusted"):
        fingerprint, _, path = line.partition(" ")
        keyrings[path] = (*keyrings.get(path, ()), fingerprint)
    for fingerprint in (*fingerprints, *(key for keys in keyrings.values() for key in keys)):
        if not _FINGERPRINT.match(fingerprint):
            raise ParseError(f"not a key fingerprint: {fingerprint[:60]!r}")
    others = []
    for line in repeated(lines, "other"):
        path, _, text = line.partition(" ")
        others.append((path, decoded({path: text}, path) or ""))
    return AptRepository(
        fingerprints=fingerprints,
        source=decoded(found, "source"),
        digest=found.get("digest"),
        refreshed=found.get("refreshed"),
        architecture=found.get("architecture", ""),
        others=tuple(others),
        trusted=tuple(keyrings.items()),
        permissions=found.get("permissions"),
    )
