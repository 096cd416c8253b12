"""What a node trusts beside gpunode's own sources: world-trusted keys and second entries for a repository of ours.

Pure: the files' texts in, a plan out. A key in /etc/apt/trusted.gpg.d may sign every repository of the node, not only
the one that it was meant for; a second entry for a repository with another Signed-By makes every `apt-get update` fail.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

DISABLED = ".gpunode-disabled"
ONE_LINE = re.compile(r"(?P<type>deb|deb-src)\s+(\[(?P<options>[^\]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)")
NO = frozenset({"no", "false", "without", "off", "disable", "0"})


@dataclass(frozen=True)
class Disable:
    """Say that a file is to be renamed out of apt's sight: all that is in it has to go."""

    path: str
    reason: str


@dataclass(frozen=True)
class Rewrite:
    """Say that a list of sources is to get a new text, in which our entries alone are disabled."""

    path: str
    text: str
    reason: str


@dataclass(frozen=True)
class Untrust:
    """Say that a keyring with other keys in it is to lose these (full fingerprints)."""

    path: str
    fingerprints: tuple[str, ...]
    reason: str


Step = Disable | Rewrite | Untrust


def normal_uri(uri: str, architecture: str) -> str:
    """Return what makes two addresses the same repository: no scheme, no closing slash, apt's $(ARCH) filled in."""
    filled = uri.replace("$(ARCH)", architecture)
    host, slash, path = filled.partition("://")[2].partition("/")
    return (host.lower() + slash + path).rstrip("/")


def plan(
    uri: str,
    suite: str,
    architecture: str,
    sources: Collection[tuple[str, str]],
    trusted: Collection[tuple[str, tuple[str, ...]]],
    retired: Collection[str],
) -> tuple[Step, ...]:
    """Return the steps after which a repository has one entry and no retired key is world-trusted.

    + uri, suite: the repository, as gpunode's own source names it
    + architecture: dpkg's, such as amd64
    + sources: (path, text) of the other lists of sources
    + trusted: (path, fingerprints of primary keys) of the world-trusted keyrings
    + retired: full fingerprints, or long key ids (their last 16 digits)

    Raise ValueError where an entry cannot be taken out by itself.
    """
    ours = (normal_uri(uri, architecture), suite)
    steps: list[Step] = []
    for path, text in sources:
        steps += _source(path, text, ours, architecture)
    for path, keys in trusted:
        bad = tuple(key for key in keys if any(key.endswith(item) for item in retired))
        if bad and set(bad) == set(keys):
            steps.append(Disable(path, f"trusts {', '.join(bad)} for every repository"))
        elif bad:
            steps.append(Untrust(path, bad, f"trusts {', '.join(bad)} for every repository, among other keys"))
    return tuple(steps)


def world_trusted(fingerprint: str, trusted: Collection[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return the world-trusted keyrings that hold a pinned key.

    They are reported, never changed: another repository of the node may have no Signed-By and live by them.
    """
    return tuple(path for path, keys in trusted if fingerprint in keys)


def _source(path: str, text: str, ours: tuple[str, str], architecture: str) -> Iterator[Step]:
    rewritten, left = (
        _stanzas(text, ours, architecture) if path.endswith(".sources") else _lines(text, ours, architecture)
    )
    if rewritten == text:
        return
    reason = f"names {ours[0]} a second time"
    yield Rewrite(path, rewritten, f"{reason}, among others") if left else Disable(path, reason)


def _lines(text: str, ours: tuple[str, str], architecture: str) -> tuple[str, int]:
    """Return the text of a one-line list with our entries as comments, and how many entries are left."""
    lines, left = [], 0
    for line in text.splitlines(keepends=True):
        entry = ONE_LINE.match(line.strip())
        if entry is None:
            lines.append(line)
        elif (normal_uri(entry["uri"], architecture), entry["suite"]) == ours:
            lines.append(f"# disabled by gpunode: {line}")
        else:
            lines.append(line)
            left += 1
    return "".join(lines), left


def fields(stanza: str) -> dict[str, str]:
    """Return the lower-case fields of a deb822 stanza, continuation lines joined by blanks."""
    found: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1] in (" ", "\t"):
            if name:
                found[name] += f" {line.strip()}"
            continue
        key, colon, value = line.partition(":")
        if colon:
            name = key.strip().lower()
            found[name] = value.strip()
    return found


def _stanzas(text: str, ours: tuple[str, str], architecture: str) -> tuple[str, int]:
    """Return the text of a deb822 list with our stanzas disabled, and how many enabled stanzas are left.

    A stanza that names other repositories too loses our address alone, so that the others stay.
    """
    parts, left = [], 0
    for part in re.split(r"(\n(?:[ \t]*\n)+)", text):
        found = fields(part)
        if "uris" not in found or found.get("enabled", "yes").lower() in NO:
            parts.append(part)
            continue
        uris, suites = found["uris"].split(), found.get("suites", "").split()
        same = [uri for uri in uris if normal_uri(uri, architecture) == ours[0] and ours[1] in suites]
        if not same:
            parts.append(part)
            left += 1
        elif len(same) == len(uris) and len(suites) == 1:
            parts.append(_with_field(part, "Enabled", "no"))
        elif len(suites) == 1:
            parts.append(_with_field(part, "URIs", " ".join(uri for uri in uris if uri not in same)))
            left += 1
        elif len(same) == len(uris):
            parts.append(_with_field(part, "Suites", " ".join(suite for suite in suites if suite != ours[1])))
            left += 1
        else:
            # Several addresses times several suites: no single field takes out one pair of them.
            raise ValueError(f"a stanza names {ours[0]} {ours[1]} among other addresses and suites; split it by hand")
    return "".join(parts), left


def _with_field(stanza: str, name: str, value: str) -> str:
    """Return a stanza with one field set, in its place where it is there, else at the end."""
    lines: list[str] = []
    inside = done = False
    for line in stanza.split("\n"):
        if inside and line[:1] in (" ", "\t"):
            continue
        inside = line.lower().startswith(f"{name.lower()}:")
        if inside:
            lines.append(f"{name}: {value}")
            done = True
        else:
            lines.append(line)
    if not done:
        closing = len(lines) - (lines[-1] == "")
        lines.insert(closing, f"{name}: {value}")
    return "\n".join(lines)
