"""Is there room for the clients that are asked for, each with its limit, on a GPU?"""

from __future__ import annotations

from collections.abc import Mapping

from gpunode.settings.mps import MpsSettings


def mebibytes(limit: str) -> int:
    """Return a memory limit (`8G`, `512M`) in MiB."""
    return int(limit[:-1]) * (1024 if limit.endswith("G") else 1)


def without_room(desired: MpsSettings, memory: Mapping[int, int | None]) -> str | None:
    """Return why the clients do not fit on a GPU; None where they do, or nobody can say.

    `memory` is index -> the GPU's memory in MiB, None where it is not known.
    """
    for index, actual in sorted(memory.items()):
        limit = desired.limit_of(index)
        if limit is None or actual is None:
            continue
        needed = (desired.clients or 1) * mebibytes(limit)
        if needed > actual:
            which = (
                f"{desired.clients} clients with {limit} each" if desired.clients else f"a client's limit of {limit}"
            )
            return f"{which} are {needed} MiB, and GPU {index} has {actual} MiB: lower mps.clients or mps.memory_limit"
    return None
