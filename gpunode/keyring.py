"""The keyrings that gpunode put on a node: which keys its package repositories are trusted by."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.probe_output import repeated
from gpunode.reading import ParseError, Reading


@dataclass(frozen=True)
class Keyrings(Reading):
    """Hold (repository, fingerprint of a primary key in its keyring) pairs."""

    keys: tuple[tuple[str, str], ...]

    def of(self, repository: str) -> tuple[str, ...]:
        """Return the fingerprints in a repository's keyring."""
        return tuple(fingerprint for name, fingerprint in self.keys if name == repository)


def parse_keyrings(lines: list[str]) -> Keyrings:
    """Parse `key=NAME FINGERPRINT` lines."""
    keys = []
    for line in repeated(lines, "key"):
        name, _, fingerprint = line.partition(" ")
        if len(fingerprint) != 40 or not fingerprint.isalnum():
            raise ParseError(f"not a key fingerprint: {fingerprint[:60]!r}")
        keys.append((name, fingerprint.upper()))
    return Keyrings(tuple(sorted(keys)))
