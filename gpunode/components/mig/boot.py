"""What brings a node's MIG layout back at every boot: gpunode's unit, its script, and the record of the layout."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.shell_file import script_file
from gpunode.base.template import rendered
from gpunode.components.mig.change import Instance
from gpunode.components.runtimes.runtime import CDI_MARK, OWN_SPECIFICATION
from gpunode.system.service import starts_at_boot

_LINE = re.compile(
    r"GPU-[0-9a-zA-Z-]{1,64} (?:off|on(?: [0-9]+g\.[0-9]+gb(?:[+-][A-Za-z0-9.,]+)?:[0-9]+=(?:[0-9]+(?:,[0-9]+)*)?)*)",
    re.ASCII,
)


def word(instance: Instance) -> str:
    """Return a GPU instance as the shell has it."""
    return f"{instance.placement}={','.join(map(str, sorted(instance.compute, reverse=True)))}"


def line(uuid: str, enabled: bool, instances: Iterable[Instance]) -> str:
    """Return the layout of a GPU, larger instances first: that is the order in which they are created."""
    largest_first = sorted(instances, key=lambda each: (-each.placement.size, each.placement))
    return " ".join([uuid, "on" if enabled else "off", *(map(word, largest_first) if enabled else ())])


def lines_of(text: str) -> tuple[str, ...] | None:
    """Return the lines of a record; None where one is no layout, which nobody may act on."""
    found = tuple(filter(None, text.splitlines()))
    return found if all(map(_LINE.fullmatch, found)) else None


# gpunode-mig.service is the transaction that is named so.
NAME = "gpunode-mig-layout.service"
UNIT = f"/etc/systemd/system/{NAME}"
SCRIPT = "/usr/local/lib/gpunode/mig-layout"
RECORD = "/var/lib/gpunode/mig/layout"


@dataclass(frozen=True)
class MigBoot(Reading):
    """Hold (path, SHA-256) of unit and script, the record's lines (None: there is no record), and the unit's state.

    `readable` is False where the record holds what is no layout. `booted_for` is what gpunode last booted the node for,
    of which no run has seen yet whether it helped. `recorded_at`: when a change of the layout was recorded last, in
    seconds of the node's clock. `record_digest`: the record's SHA-256 (hex).
    """

    files: tuple[tuple[str, str], ...] = ()
    record: tuple[str, ...] | None = None
    readable: bool = True
    enabled: bool = False
    failed: bool = False
    booted_for: str | None = None
    recorded_at: int | None = None
    record_digest: str | None = None

    @property
    def is_there(self) -> bool:
        """Say whether there is anything that gpunode set up."""
        return bool(self.files) or self.record is not None or not self.readable


def parse_mig_boot(lines: list[str]) -> MigBoot:
    """Parse `file=PATH DIGEST`, `record=BASE64`, `enabled=` and `active=` (UnitFileState and ActiveState).

    Where no systemd runs (an image that is being made) it says nothing of the unit.
    """
    found = values(lines)
    files = [tuple(line.split(" ", 1)) for line in repeated(lines, "file")]
    if any(len(pair) != 2 for pair in files):
        raise ParseError("a file's line has no digest")
    # An empty file is a record, too.
    text = decoded(found, "record") if "record" in found else "" if "empty" in found else None
    lines_there = None if text is None else lines_of(text)
    return MigBoot(
        files=tuple((path, digest) for path, digest in files),
        record=lines_there,
        readable=text is None or lines_there is not None,
        enabled=starts_at_boot(found.get("enabled")),
        failed=found.get("active") == "failed",
        booted_for=found.get("attempt", "").partition(" ")[0] or None,
        recorded_at=int(found["recorded"]) if found.get("recorded", "").isdecimal() else None,
        record_digest=None if text is None else hashlib.sha256(text.encode()).hexdigest(),
    )


# For the transaction, its undoing, and the unit that runs at boot.
FUNCTIONS = script_file("mig_asking", "mig_holders", "mig_creating", "mig_reaching", "mig_cdi").strip()


@cache
def desired_files() -> Mapping[str, str]:
    """Return path -> text of the unit and of its script."""
    script = rendered(
        "gpunode-mig-layout", functions=FUNCTIONS, name=NAME, cdi=OWN_SPECIFICATION, mark=shlex.quote(CDI_MARK)
    )
    unit = rendered("gpunode-mig-layout.service", script=SCRIPT, record=RECORD)
    return MappingProxyType({UNIT: unit, SCRIPT: script})
