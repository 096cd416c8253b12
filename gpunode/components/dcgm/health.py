"""What `dcgmi health -c -j` says of the GPUs.

Its JSON: `body` has `Overall Health` and a group of entities by their kind (GPU, Switch, …), each entity the `Errors`
of its systems, with `value` (Healthy, Warning, Failure) and the words in `overflow`, cut into lines. Where it has no
answer it prints `Error: …` and ends with another exit code than 0.
source: NVIDIA/DCGM at v4.6.0, dcgmi/Health.cpp and dcgmi/DcgmiOutput.h
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpunode.base.reading import Reading

HEALTHY, WARNING = "Healthy", "Warning"
_OVERALL, _UNWATCHED = "Overall Health", "Health watches not enabled"
_LONGEST = 400


@dataclass(frozen=True)
class Incident:
    """Hold what is wrong with one system (`PCIe system`) of one entity (`GPU 0`): Warning or worse, in DCGM's words."""

    entity: str
    system: str
    value: str
    message: str = ""


@dataclass(frozen=True)
class DcgmHealth(Reading):
    """Hold the answer: `overall` is None where there is none, and `error` says why then.

    `watched`: whether the host engine watches anything; without that it has nothing to say.
    """

    overall: str | None = None
    incidents: tuple[Incident, ...] = ()
    watched: bool = True
    error: str | None = None


def parse_health(printed: str, exit_code: str) -> DcgmHealth:
    """Parse what dcgmi printed; whatever that is, it comes to an answer or to an error in its words."""
    if _UNWATCHED in printed:
        return DcgmHealth(watched=False)
    found = _object(printed)
    overall = _text(_member(_member(found.get("body"), _OVERALL), "value"))
    if exit_code != "0" or overall is None:
        words = " ".join(printed.split())[:_LONGEST]
        return DcgmHealth(error=words or f"exit code {exit_code}, and no answer")
    return DcgmHealth(overall, tuple(_incidents(found["body"])))


def _incidents(body: dict[str, Any]) -> Iterator[Incident]:
    for kind, group in body.items():
        for number, entity in _children(group):
            for _, errors in _children(entity):
                for system, said in _children(errors):
                    value, lines = _text(_member(said, "value")), _member(said, "overflow")
                    message = " ".join(map(str, lines)) if isinstance(lines, list) else ""
                    words = " ".join(message.split())[:_LONGEST]
                    yield Incident(f"{kind} {number}", system, value or "no value", words)


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _member(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    children = _member(value, "children")
    yield from children.items() if isinstance(children, dict) else ()


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
