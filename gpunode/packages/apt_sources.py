"""apt's sources that name NVIDIA, and the keys that a node trusts for every repository."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading

# What stands before the host in an address is a password as a rule; readings are printed and recorded.
_CREDENTIALS = re.compile(r"://[^/@\s]+@")


@dataclass(frozen=True)
class AptSources(Reading):
    """Hold what preflight asks of apt, empty on a node without apt; and of pacman.

    `architecture` is dpkg's. `sources` are (path, text) of lists that name NVIDIA or CUDA and are not gpunode's own,
    `trusted` (path, fingerprints of primary keys) of world-trusted keyrings, `origins` those of the archives that apt
    reads, where it has fetched their lists. `pacman_repositories` are (name, the levels of trust that pacman-conf
    prints).
    """

    architecture: str | None = None
    sources: tuple[tuple[str, str], ...] = ()
    trusted: tuple[tuple[str, tuple[str, ...]], ...] = ()
    origins: tuple[str, ...] = ()
    pacman_repositories: tuple[tuple[str, tuple[str, ...]], ...] = ()


def parse_apt_sources(lines: list[str]) -> AptSources:
    """Parse `architecture=`, `source=PATH BASE64`, `trusted=FINGERPRINT PATH` and `origin=` lines."""
    sources = []
    for line in repeated(lines, "source"):
        path, _, text = line.partition(" ")
        sources.append((path, _CREDENTIALS.sub("://", decoded({path: text}, path) or "")))
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
    )
