"""Cores as Slurm counts them: not by the kernel's numbers, but socket by socket, as hwloc does (lstopo -l)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from gpunode.base.reading import ParseError

_RANGES = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)
# The kernel counts none beyond it.
_MOST = 8192


def numbers(ranges: str) -> tuple[int, ...]:
    """Return what the kernel's list means: `0-3,8` is 0, 1, 2, 3, 8; raise ParseError."""
    if not ranges:
        return ()
    if _RANGES.fullmatch(ranges) is None:
        raise ParseError(f"not a list of CPUs: {ranges[:80]!r}")
    found: list[int] = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not low <= high < _MOST:
            raise ParseError(f"not a range of CPUs: {part!r}")
        found.extend(range(low, high + 1))
    return tuple(found)


def ranges(values: Iterable[int]) -> str:
    """Return numbers as Slurm writes them: 0, 1, 2, 3, 8 is `0-3,8`."""
    parts: list[list[int]] = []
    for value in sorted(set(values)):
        if parts and value == parts[-1][1] + 1:
            parts[-1][1] = value
        else:
            parts.append([value, value])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def cores_of(rows: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """Return the CPUs of each core in Slurm's order, from lscpu's rows CPU,CORE,SOCKET,NODE; raise ParseError.

    Sockets, NUMA nodes within them and cores within these come in the order of their first CPUs, as in hwloc.
    """
    by_core: dict[tuple[str, str, str], list[int]] = {}
    for row in rows:
        cells = row.split(",")
        if len(cells) != 4 or not cells[0].isdecimal():
            raise ParseError(f"not a row of lscpu's: {row[:80]!r}")
        cpu, core, socket, node = cells
        by_core.setdefault((socket, node, core), []).append(int(cpu))

    def first(*key: str) -> int:
        return min(min(cpus) for known, cpus in by_core.items() if known[: len(key)] == key)

    order = {key: (first(key[0]), first(*key[:2]), min(cpus)) for key, cpus in by_core.items()}
    return tuple(tuple(sorted(by_core[key])) for key in sorted(by_core, key=order.__getitem__))


def near_cores(cores: Sequence[Collection[int]], near: Collection[int]) -> str | None:
    """Return the cores of these CPUs as Slurm's list; None where there is no choice: they are all, or not known."""
    found = [number for number, cpus in enumerate(cores) if set(cpus) & set(near)]
    return ranges(found) if found and len(found) < len(cores) else None
