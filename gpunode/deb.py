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
    """Hold installed packages as (name, version), versions as dpkg writes them.

    `interrupted`: dpkg has packages that are half installed, or not configured, as after a reboot during its work.
    """

    installed: tuple[tuple[str, str], ...]
    interrupted: bool = False

    def missing(self, wanted: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the entries of name -> version rule that are not satisfied."""
        installed = dict(self.installed)
        return {
            name: rule for name, rule in wanted.items() if name not in installed or not satisfies(installed[name], rule)
        }

    def together(self, wanted: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return name -> version rule for packages that belong together.

        It is `wanted`, but where some of it is installed and not all of that at one version, all are asked for at the
        newest version that is there and fits: nothing moves further than it must. Raise VersionError.
        """
        found = [version for name, version in self.installed if name in wanted and satisfies(version, wanted[name])]
        present = {versions.upstream(version) for version in found}
        if not present or (len(present) == 1 and not self.missing(wanted)):
            return wanted
        return dict.fromkeys(wanted, max(present, key=versions.parsed))


def satisfies(deb_version: str, rule: str | None) -> bool:
    """Say whether a package version fits a rule: None (any), a branch (`580`) or an upstream version (`580.95.05`).

    `1:1.6.20~ds1-1+deb12u1` fits `1.6.20` and `1.6`: epoch and what follows the upstream version do not count. A
    release candidate fits only where it is asked for as one: `1.18.0~rc.1-1` fits `1.18.0-rc.1` and not `1.18.0`.
    """
    if rule is None:
        return True
    try:
        if versions.parsed(deb_version).is_prerelease or versions.parsed(rule).is_prerelease:
            return versions.same(deb_version, rule)
        return versions.in_branch(deb_version, rule)
    except versions.VersionError:
        return False


def parse_deb_packages(lines: list[str]) -> DebPackages:
    """Parse `package=NAME VERSION` lines; dpkg must have told of itself, else its silence says nothing."""
    if values(lines).get("dpkg") != "installed":
        raise ParseError("dpkg-query gave no answer")
    packages = (line.partition(" ")[::2] for line in repeated(lines, "package"))
    return DebPackages(
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
    """Parse what facts.deb.AptRepository prints.

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
