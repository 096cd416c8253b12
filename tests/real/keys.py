"""Repositories that others publish, and their keys: where gpunode's settings have them, known by their fingerprints."""

from __future__ import annotations

import subprocess
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path

from gpunode.base.tables.sources import Distribution
from gpunode.settings import settings_from
from gpunode.settings.repositories import Repository


class NotReached(RuntimeError):
    """Say which key or keyring is not to be had."""


class Closed(RuntimeError):
    """Say which repository there is none of, or none that everybody may read."""


def published(row: Distribution, repository: str) -> Repository:
    """Return NVIDIA's (`cuda`), the toolkit's or Docker's repository for a distribution, as a node is told of it."""
    found = settings_from({}).repositories.on(repository, row.family, row.unverified_key, row.repository)
    return found.at(
        distribution=row.repository or "",
        architecture=row.architectures["x86_64"],
        os_id=row.docker or row.id,
        channel="stable",
    )


def fetched_key(address: str, fingerprint: str, keyring: Path) -> str:
    """Write the key at an address to a file and return its fingerprint; raise NotReached where there is none.

    Raise AssertionError where it is not the one that the tables name; with an empty fingerprint any one key is taken.
    """
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            keyring.write_bytes(answer.read())
    except (urllib.error.URLError, OSError) as error:
        raise NotReached(f"{address}: {error}") from error
    told = fingerprints(keyring)
    if len(told) != 1 or (fingerprint and told != {fingerprint}):
        raise AssertionError(f"{address} holds {', '.join(sorted(told)) or 'no key'}, and not {fingerprint or 'one'}")
    return told.pop()


def fingerprints(keyring: Path) -> set[str]:
    """Return the fingerprints of the primary keys in a file."""
    shown = subprocess.run(
        ["gpg", "--batch", "--with-colons", "--show-keys", str(keyring)], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    after = [line.split(":") for line in shown if line.startswith(("pub:", "fpr:"))]
    return {words[9] for before, words in pairwise(after) if before[0] == "pub"}
