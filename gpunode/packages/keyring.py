"""The keyrings that gpunode put on a node: by which keys its repositories are trusted, and who may write them."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe import shell_text
from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError, Reading

# The function `primary_keys` for whoever asks by shell.
PRIMARY_KEYS = f"{shell_text('packages/keyring')}\n"

# Mode, owner and group of a keyring, as `stat -c '%a %U:%G'` prints them: whoever may write it decides what is
# installed, and apt reads it as its own user _apt.
PERMISSIONS = "644 root:root"


@dataclass(frozen=True)
class Keyrings(Reading):
    """Hold (repository, fingerprint of a primary key in its keyring) and (repository, its keyring's permissions)."""

    keys: tuple[tuple[str, str], ...]
    permissions: tuple[tuple[str, str], ...] = ()

    def of(self, repository: str) -> tuple[str, ...]:
        """Return the fingerprints in a repository's keyring."""
        return tuple(fingerprint for name, fingerprint in self.keys if name == repository)

    def permissions_of(self, repository: str) -> str | None:
        """Return mode, owner and group of a repository's keyring, None where there is none."""
        return dict(self.permissions).get(repository)


def parse_keyrings(lines: list[str]) -> Keyrings:
    """Parse `key=NAME FINGERPRINT` and `permissions=NAME MODE OWNER:GROUP` lines."""
    keys = []
    for line in repeated(lines, "key"):
        name, _, fingerprint = line.partition(" ")
        if len(fingerprint) != 40 or not fingerprint.isalnum():
            raise ParseError(f"not a key fingerprint: {fingerprint[:60]!r}")
        keys.append((name, fingerprint.upper()))
    permissions = (line.partition(" ")[::2] for line in repeated(lines, "permissions"))
    return Keyrings(tuple(sorted(keys)), tuple(sorted((name, found) for name, found in permissions)))
