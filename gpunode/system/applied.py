"""What the last whole run recorded on a node: by which gpunode and settings, and the own files that it left there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from posixpath import normpath
from typing import Any

from gpunode.base.document import newer
from gpunode.base.findings import parse_waiting
from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.structured_text import TextError, load_json

PATH = "/var/lib/gpunode/applied.json"
SCHEMA = 1
# Where own files are. The record is a file that a hand may have edited: nothing else of a node is read because of it.
FOLDERS = ("/etc/", "/usr/", "/var/lib/gpunode/")
OWNED = "root:root"


@dataclass(frozen=True)
class OwnFile(Reading):
    """Hold a file as gpunode leaves it: its text's SHA-256, and its mode where gpunode keeps that as well.

    Both are None of a file that has a text which only a later step of a run can tell.
    """

    sha256: str | None
    mode: str | None = None


@dataclass(frozen=True)
class PresentFile(Reading):
    """Hold a regular file as it is: mode and owners as `stat -c '%a %U:%G'` prints them; None cannot be read."""

    permissions: str | None
    sha256: str | None


@dataclass(frozen=True)
class Applied(Reading):
    """Hold the record and its files as they are now.

    readable: whether the record says what a record says; one that is not there does, too
    settings: digest of the settings; files: path -> as recorded; present: path -> as it is, the record's own included
    waiting: what waited for a restart or a boot -> since when
    newer: why the record cannot be read where a newer gpunode wrote it; nothing else of it is read then
    """

    readable: bool = True
    gpunode: str | None = None
    settings: str | None = None
    files: tuple[tuple[str, OwnFile], ...] = ()
    present: tuple[tuple[str, PresentFile], ...] = ()
    waiting: tuple[tuple[str, str], ...] = ()
    newer: str | None = None


def record_text(
    gpunode: str, settings: str, files: Mapping[str, OwnFile], waiting: Mapping[str, str] | None = None
) -> str:
    """Return the record's text; the same for the same, in whatever order the files come.

    + waiting: as of `gpunode.base.findings`; a record where nothing waits does not tell of it
    """
    record: dict[str, Any] = {"gpunode": gpunode, "schema": SCHEMA, "settings": settings}
    record["files"] = {
        path: {key: value for key, value in vars(file).items() if value is not None} for path, file in files.items()
    }
    if waiting:
        record["waiting"] = dict(waiting)
    return json.dumps(record, indent=2, sort_keys=True) + "\n"


def parse_applied(lines: list[str]) -> Applied:
    """Parse `record=BASE64`, `file=MODE OWNER:GROUP PATH` and `sha256=HEX PATH` (gpunode/system/applied.sh)."""
    found = values(lines)
    permissions: dict[str, str] = {}
    for line in repeated(lines, "file"):
        words = line.split(" ", 2)
        if len(words) < 3:
            raise ParseError(f"a file's line lacks its path: {line[:80]!r}")
        permissions[words[2]] = " ".join(words[:2])
    digests = {path: digest for digest, _, path in (line.partition(" ") for line in repeated(lines, "sha256"))}
    paths = dict.fromkeys((*permissions, *digests))
    present = tuple((path, PresentFile(permissions.get(path), digests.get(path))) for path in paths)
    if (text := decoded(found, "record")) is None:
        return Applied(readable=PATH not in paths, present=present)
    record = _loaded(text)
    if reason := newer(record, SCHEMA):
        return Applied(present=present, newer=reason)
    if not (settings := _text(record, "settings")):
        return Applied(readable=False, present=present)
    files, waiting = _files(record.get("files")), parse_waiting(record.get("waiting"))
    return Applied(True, _text(record, "gpunode"), settings, tuple(files), present, tuple(waiting.items()))


def _loaded(text: str) -> dict[str, Any]:
    """Return the record; empty where the text is none."""
    try:
        record = load_json(text)
    except TextError:
        return {}
    return record if isinstance(record, dict) else {}


def _files(found: Any) -> list[tuple[str, OwnFile]]:
    """Return the recorded files, by path; an entry that no gpunode wrote says nothing."""
    entries = found.items() if isinstance(found, dict) else ()
    return sorted(
        (path, OwnFile(_text(entry, "sha256"), _text(entry, "mode")))
        for path, entry in entries
        if path.startswith(FOLDERS) and normpath(path) == path
        if path.isascii() and path.isprintable() and not set(path) & set('"\\')
        if isinstance(entry, dict) and _text(entry, "sha256")
    )


def _text(found: Mapping[str, Any], key: str) -> str | None:
    return value if isinstance(value := found.get(key), str) else None
