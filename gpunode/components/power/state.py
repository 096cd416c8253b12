"""What gpunode keeps on a node of power limits and clocks: its two files, the unit, and which clocks were locked."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.components.power.rules import GRAPHICS, MEMORY, Rule, parsed
from gpunode.system.unit import starts_at_boot


@dataclass(frozen=True)
class Lock(Reading):
    """Hold that a GPU's clocks were locked: its PCI address, graphics or memory, `lowest,highest` in MHz."""

    address: str
    kind: str
    value: str


@dataclass(frozen=True)
class Power(Reading):
    """Hold digests of gpunode's files, and what stands in them.

    `files` are (path, SHA-256), `foreign` the paths where somebody else's file stands, `rules` the lines of the script
    that tell the driver something; `enabled`: whether the unit starts at boot. `locks` are of the driver that is
    loaded: those of an earlier one are forgotten.
    """

    files: tuple[tuple[str, str], ...] = ()
    foreign: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    enabled: bool = False
    locks: tuple[Lock, ...] = ()

    @property
    def parsed_rules(self) -> tuple[Rule, ...]:
        """Return the rules that the driver is told."""
        return parsed(self.rules)

    def lock(self, address: str, kind: str) -> str | None:
        """Return at what a GPU's clocks were locked; None where they were not."""
        return next((each.value for each in self.locks if (each.address, each.kind) == (address, kind)), None)


def parse_power(lines: list[str]) -> Power:
    """Parse the probe's lines: `file=PATH DIGEST`, `foreign=PATH`, `rule=LINE`, `UnitFileState=`, `module=NUMBER`, and
    `note=` lines of what was locked, the first of which is the number of the module at that time.

    Raise ParseError for a file without a digest.
    """
    found = values(lines)
    files = [line.rpartition(" ") for line in repeated(lines, "file")]
    if any(not path or len(digest) != 64 for path, _, digest in files):
        raise ParseError("a file's line has no digest")
    return Power(
        files=tuple((path, digest) for path, _, digest in files),
        foreign=tuple(repeated(lines, "foreign")),
        rules=tuple(repeated(lines, "rule")),
        enabled=starts_at_boot(found.get("UnitFileState", "")),
        locks=_locks(list(repeated(lines, "note")), found.get("module", "")),
    )


def _locks(lines: list[str], module: str) -> tuple[Lock, ...]:
    if not lines or not module or lines[0] != f"module {module}":
        return ()
    cells = [line.split(" ") for line in lines[1:]]
    return tuple(Lock(*each) for each in cells if len(each) == 3 and each[1] in (GRAPHICS, MEMORY))
