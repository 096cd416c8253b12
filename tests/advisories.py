"""`make audit`: does uv.lock name a release with a known vulnerability? Works offline from the last database.

The database is OSV's for PyPI, one archive that holds every advisory, kept in the cache folder. Without network and
without a stored one the answer is that nothing could be checked, and the exit status is 0: a missing network is no
fault of the lock file. Exit status: 0 nothing known, or not checked; 1 a vulnerable release; 2 uv.lock unreadable.
"""

from __future__ import annotations

import json
import os
import sys
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from gpunode.lab.cache import cache_dir

DATABASE = "https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip"
LOCK_FILE = Path(__file__).resolve().parents[1] / "uv.lock"
_SECONDS = 20


class NotChecked(Exception):
    """Say why there is no database to check against."""


@dataclass(frozen=True)
class Vulnerable:
    """Hold one release of the lock file and the advisory that names it."""

    package: str
    version: str
    advisory: str
    summary: str

    def __str__(self) -> str:
        """Return one line."""
        return f"{self.package} {self.version}: {self.advisory}: {self.summary}"


def locked(text: str) -> dict[str, str]:
    """Return package -> version of a uv.lock's text, what comes from no registry (the project itself) left out."""
    rows = tomllib.loads(text).get("package", [])
    return {canonicalize_name(row["name"]): row["version"] for row in rows if "registry" in row.get("source", {})}


def stored(url: str = DATABASE) -> tuple[Path, str]:
    """Return the database's file and what is to be said of its age; fetch it first where that can be done.

    Raise NotChecked where it can be neither fetched nor found.
    """
    path = cache_dir() / "advisories.zip"
    draft = path.with_suffix(f".{os.getpid()}")
    try:
        with urllib.request.urlopen(url, timeout=_SECONDS) as answer:
            draft.write_bytes(answer.read())
        with zipfile.ZipFile(draft) as archive:
            archive.namelist()
        draft.replace(path)
        return path, "fetched now"
    except (OSError, urllib.error.URLError, zipfile.BadZipFile) as error:
        draft.unlink(missing_ok=True)
        if not path.exists():
            raise NotChecked(f"the database could not be fetched ({error}) and none is stored") from error
        fetched = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return path, f"of {fetched:%Y-%m-%d}, since a newer one could not be fetched ({error})"


def vulnerable(releases: Mapping[str, str], advisories: Iterator[Mapping[str, Any]]) -> list[Vulnerable]:
    """Return the releases that an advisory names; withdrawn advisories do not count."""
    found = set()
    for advisory in advisories:
        if advisory.get("withdrawn"):
            continue
        for affected in advisory.get("affected", []):
            name = canonicalize_name(affected.get("package", {}).get("name", ""))
            version = releases.get(name)
            if version is not None and _affects(affected, version):
                summary = " ".join(str(advisory.get("summary") or advisory.get("details") or "").split())[:100]
                found.add(Vulnerable(name, version, str(advisory.get("id")), summary))
    return sorted(found, key=str)


def _affects(affected: Mapping[str, Any], version: str) -> bool:
    if version in affected.get("versions", []):
        return True
    ranges = [item.get("events", []) for item in affected.get("ranges", []) if item.get("type") == "ECOSYSTEM"]
    return any(_within(events, Version(version)) for events in ranges)


def _within(events: list[Mapping[str, str]], version: Version) -> bool:
    """Say whether OSV's events (introduced, fixed, last_affected, in order) hold a version."""
    inside = False
    for event in events:
        kind, bound = next(iter(event.items()))
        try:
            reached = bound == "0" or version >= Version(bound)
            beyond = bound != "0" and version > Version(bound)
        except InvalidVersion:
            continue
        if kind == "introduced" and reached:
            inside = True
        elif (kind == "fixed" and reached) or (kind == "last_affected" and beyond):
            inside = False
    return inside


def _advisories(path: Path) -> Iterator[Mapping[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def main(lock_file: Path = LOCK_FILE, url: str = DATABASE) -> int:
    """Check the lock file, say the outcome, and return the exit status."""
    try:
        releases = locked(lock_file.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError, KeyError) as error:
        print(f"{lock_file.name} cannot be read: {error}", file=sys.stderr)
        return 2
    try:
        path, age = stored(url)
        found = vulnerable(releases, _advisories(path))
    except NotChecked as reason:
        print(f"NOT CHECKED: {len(releases)} locked packages were not checked for vulnerabilities: {reason}")
        return 0
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        print(f"NOT CHECKED: the stored database cannot be read ({error}); it is removed, run again with network")
        (cache_dir() / "advisories.zip").unlink(missing_ok=True)
        return 0
    for item in found:
        print(item)
    known = f"{len(found)} known vulnerabilities" if found else "no known vulnerability"
    print(f"{len(releases)} locked packages: {known}, by the database {age}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
