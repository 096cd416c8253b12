"""What every JSON document of gpunode's has at its head, and the schemas of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from gpunode.base.findings import ExitCode

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TEXT: dict[str, Any] = {"type": "string"}
MAYBE: dict[str, Any] = {"type": ["string", "null"]}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
# What the document of a command that takes an inventory is of (gpunode.fleet.call.Call.to_json).
OF_CALL: dict[str, Any] = {"inventory": MAYBE, "limit": TEXTS, "set": TEXTS}
ERROR_SCHEMA = 1
# Versions of documents that gpunode reads again: of drift, apply, ci and agent collect; of rollout; an agent's report.
REPORT_SCHEMA, ROLLOUT_SCHEMA, AGENT_SCHEMA = 3, 2, 1
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
    return f"{key} is {found!r}, and gpunode {here} reads {known} at most: a newer gpunode may have written it"


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


def document_schema(
    schema: int,
    counts: Mapping[str, Any],
    exit_codes: Iterable[int],
    keys: Mapping[str, Any],
    of: Mapping[str, Any] | None = None,
    optional: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the JSON schema of a document with that head.

    counts: key -> schema; of: what the head says it is of; keys: what follows the head; optional: what may be missing
    """
    properties = {
        "schema": {"const": schema},
        "gpunode": TEXT,
        **(of or {}),
        "at": {"type": "string", "format": "date-time"},
        "counts": objects(counts),
        "exit_code": {"enum": [int(code) for code in exit_codes]},
        **keys,
    }
    left = set(optional)
    required = [name for name in properties if name not in left]
    return {"$schema": DRAFT, "type": "object", "required": required, "properties": properties}


def objects(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all of these keys."""
    return {"type": "object", "required": list(keys), "properties": dict(keys)}


def each(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose every value is of that schema."""
    return {"type": "object", "additionalProperties": dict(value)}


# What of a command itself failed beside what its document is about: a report that could not be written, say.
ERRORS: dict[str, Any] = {"type": "array", "items": objects({"error": TEXT, "code": TEXT})}


def error_document(message: str, code: str, status: ExitCode, of: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what is printed instead of a command's document where it came to none.

    code: of the message; of: what the document would be of, as far as the command line could be read
    """
    return {**head(ERROR_SCHEMA, {}, status, of), "error": message, "code": code}


def error_schema() -> dict[str, Any]:
    """Return the JSON schema of that."""
    codes = (ExitCode.ERROR, ExitCode.NEGATIVE, ExitCode.INPUT_REFUSED, ExitCode.USAGE)
    of = {**OF_CALL, "source": MAYBE, "lab": TEXT}
    keys = {"error": TEXT, "code": TEXT, "problems": {"type": "array", "items": {"type": "object"}}}
    return document_schema(ERROR_SCHEMA, {}, codes, keys, of, optional=(*of, "problems"))
