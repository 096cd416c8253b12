"""What a part's command must find on its worker: the same gpunode, and the same settings of the part's hosts.

It stands in the environment of the command, which is a child of the worker's; a worker whose checkout is behind would
else judge, or bring, its hosts by settings that nobody asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error
from gpunode.fleet.engine.parts import joined

PART = "GPUNODE_PART"


class PartError(CodedError):
    """Say that a worker has something else than whoever gave it the part."""

    code = command_error(
        "engine.other-settings",
        "A worker has another gpunode, or other settings for these hosts, than the controller.",
        "It would judge or change its hosts by the wrong settings. Nothing was done to these hosts.",
        remedy="bring the worker's checkout and gpunode to the controller's state, and start the worker in it",
    )


@dataclass(frozen=True)
class Expected:
    """Hold what is expected: gpunode's version, the fingerprint of the part's hosts, and how they are read.

    processes: by how many; None where the command decides that by itself. names: the part's
    hosts, where nothing else of the inventory is needed; None where the whole of it says what they are to be
    """

    gpunode: str
    fingerprint: str
    processes: int | None = None
    names: tuple[str, ...] | None = None

    def environment(self) -> dict[str, str]:
        """Return what tells a command so."""
        return {PART: json.dumps(asdict(self))}


def expected() -> Expected | None:
    """Return what this command must find; None where it is no part of another."""
    told = os.environ.get(PART)
    if not told:
        return None
    found = json.loads(told)
    return Expected(**{**found, "names": None if found["names"] is None else tuple(found["names"])})


def refuse_others(desired: Expected, fingerprints: Mapping[str, str]) -> None:
    """Raise PartError where this gpunode, or these hosts' settings and addresses, are not those that are expected."""
    here = version("gpunode")
    if here != desired.gpunode:
        raise PartError(
            f"this worker has gpunode {here}, and whoever asks has {desired.gpunode}: install the same on both"
        )
    if joined(fingerprints) != desired.fingerprint:
        raise PartError(
            "this worker's inventory has other settings or addresses for these hosts than the one of whoever asks: "
            "bring the worker's checkout to the same state, and start the worker in it"
        )
