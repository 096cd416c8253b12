"""The first keys of every JSON document of gpunode, and the check of the versions of documents that are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any

ERROR_SCHEMA = 1
# Versions of documents that gpunode reads again: of drift, apply, ci and agent collect; of rollout; an agent's report.
REPORT_SCHEMA, ROLLOUT_SCHEMA, AGENT_SCHEMA = 3, 2, 1
# How far the clock of another machine may be ahead of this one's.
AHEAD = timedelta(minutes=5)
# What to do where `newer` returns a reason.
UPDATE = "update gpunode here"


def newer(content: Mapping[str, Any], known: int, key: str = "schema") -> str | None:
    """Return why a format that gpunode writes is not read: it has a version that is not known here; else None.

    known: the newest version that this gpunode reads. A format without a version is of the first one.
    """
    found = content.get(key, 1)
    if type(found) is int and 1 <= found <= known:
        return None
    here = version("gpunode")
    return f"{key} is {repr(found)[:40]}, and gpunode {here} reads {known} at most: a newer gpunode may have written it"


def head(
    schema: int,
    counts: Mapping[str, Any],
    exit_code: int,
    of: Mapping[str, Any] | None = None,
    gpunode: str | None = None,
    at: datetime | None = None,
) -> dict[str, Any]:
    """Return a document's first keys: schema, gpunode's version, what it is of, when, counts, and the exit code.

    schema: raised when a key goes away or changes its meaning; a new key raises nothing. of: such as the inventory.
    gpunode, at: the version that runs, and now, where they are not given
    """
    return {
        "schema": schema,
        "gpunode": gpunode or version("gpunode"),
        **(of or {}),
        "at": (at or datetime.now(UTC)).astimezone(UTC).isoformat(timespec="seconds"),
        "counts": dict(counts),
        "exit_code": int(exit_code),
    }
