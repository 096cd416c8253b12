"""Debian packages and apt repositories on a node."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpunode import versions
from gpunode.probe_output import decoded, repeated, values
from gpunode.reading import ParseError, Reading


@dataclass(frozen=True)
class DebPackages(Reading):
    """Hold installed packages as (name, version), versions as dpkg writes them."""

    installed: tuple[tuple[str, str], ...]

    def missing(self, wanted: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the entries of name -> version rule that are not satisfied."""
        installed = dict(self.installed)
        return {
            name: rule for name, rule in wanted.items() if name not in installed or not satisfies(installed[name], rule)
        }


def satisfies(deb_version: str, rule: str | None) -> bool:
    """Say whether a package version fits a rule: None (any), a branch (`580`) or an upstream version (`580.95.05`).

    `1:1.6.20~ds1-1+deb12u1` fits `1.6.20` and `1.6`: epoch and what follows the upstream version do not count.
    """
    if rule is None:
        return True
    try:
        return versions.in_branch(deb_version, rule)
    except versions.VersionError:
        return False


def parse_deb_packages(lines: list[str]) -> DebPackages:
    """Parse `package=NAME VERSION` lines."""
    packages = (line.partition(" ")[::2] for line in repeated(lines, "package"))
    return DebPackages(tuple(sorted((name, version) for name, version in packages)))


@dataclass(frozen=True)
class AptRepository(Reading):
    """Hold an apt repository of ours: key fingerprints in its keyring, the text of its source, the refreshed state.

    `refreshed` is the digest of source and key for which the lists were last fetched; None where they never were.
    """

    fingerprints: tuple[str, ...]
    source: str | None
    digest: str | None
    refreshed: str | None


_FINGERPRINT = re.compile(r"^[0-9A-F]{40}$")


def parse_apt_repository(lines: list[str]) -> AptRepository:
    """Parse `fingerprint=`, `source=` (base64), `digest=` and `refreshed=` lines."""
    found = values(lines)
    fingerprints = tuple(repeated(lines, "fingerprint"))
    for fingerprint in fingerprints:
        if not _FINGERPRINT.match(fingerprint):
            raise ParseError(f"not a key fingerprint: {fingerprint[:60]!r}")
    return AptRepository(
        fingerprints=fingerprints,
        source=decoded(found, "source"),
        digest=found.get("digest"),
        refreshed=found.get("refreshed"),
    )
