"""Since when a node waits: what runs left as it is, by the node's own record. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.findings import Finding, FindingClass

PENDING = (FindingClass.RESTART_PENDING, FindingClass.REBOOT_PENDING)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z", re.ASCII)
_LONGEST = 300


def waiting(findings: Iterable[Finding], before: Mapping[str, str], now: str) -> dict[str, str]:
    """Return what waits -> since when: what waited before keeps its time, and what waits no more is left out.

    + before: as this returned it at the end of the run before; now: as 2026-01-31T12:00:00Z
    """
    return {key: before.get(key, now) for key in map(_key, findings) if key is not None}


def with_since(findings: Iterable[Finding], recorded: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the findings, each that waits with the time since when it does; one that no run has left yet has none."""
    keyed = ((item, _key(item)) for item in findings)
    return tuple(replace(item, since=recorded[key]) if key and key in recorded else item for item, key in keyed)


def parse_waiting(found: Any) -> dict[str, str]:
    """Return what a record says of it; an entry that no gpunode wrote says nothing, for a hand may have edited it."""
    entries = found.items() if isinstance(found, dict) else ()
    return {
        key: since
        for key, since in entries
        if isinstance(key, str) and key.isprintable() and len(key) <= _LONGEST
        if isinstance(since, str) and _TIME.fullmatch(since)
    }


def _key(item: Finding) -> str | None:
    key = f"{item.component}: {item.what}"
    return key if item.finding_class in PENDING and key.isprintable() and len(key) <= _LONGEST else None
