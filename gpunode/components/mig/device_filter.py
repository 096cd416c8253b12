"""PCI ids by which an entry chooses GPUs: `0x233010DE`, or with the board's subsystem `0x233010DE:0x16C010DE`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

NVIDIA = 0x10DE
# What Go's strconv.ParseUint takes with base 0.
_NUMBER = re.compile(
    r"0[xX](?P<hex>_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*)|0[bB](?P<binary>_?[01]+(?:_[01]+)*)"
    r"|0[oO]?(?P<octal>_?[0-7]+(?:_[0-7]+)*)|(?P<decimal>0|[1-9][0-9]*(?:_[0-9]+)*)",
    re.ASCII,
)
_BASES = {"hex": 16, "binary": 2, "octal": 8, "decimal": 10}


class Match(Enum):
    """Name whether a filter lets a GPU through; maybe: it asks for a subsystem, and the GPU's is not known."""

    YES = "yes"
    MAYBE = "maybe"
    NO = "no"


@dataclass(frozen=True)
class PciId:
    """Hold a GPU's ids as numbers; `subsystem` is (device, vendor), None where nothing is said of it."""

    device: int
    vendor: int
    subsystem: tuple[int, int] | None = None

    @property
    def device_id(self) -> str:
        """Return the device's id as tables have it: four hex digits, upper case."""
        return f"{self.device:04X}"


def parse_pci_id(text: str) -> PciId | None:
    """Return the ids that a filter names; None where it is malformed, which matches no GPU in nvidia-mig-parted."""
    numbers = [_number(part) for part in text.split(":")]
    if len(numbers) > 2 or None in numbers:
        return None
    (device, vendor), *subsystem = (divmod(number, 0x10000) for number in numbers if number is not None)
    return PciId(device, vendor, subsystem[0] if subsystem else None)


def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text)
    # 32 bits have 32 digits at most, in whatever base; Python refuses thousands of them.
    if found is None or len(text) > 64:
        return None
    kind = next(name for name, digits in found.groupdict().items() if digits is not None)
    value = int(found[kind].replace("_", ""), _BASES[kind])
    return value if value < 2**32 else None


def matches(filters: Iterable[str], gpu: PciId) -> Match:
    """Say whether an entry with these filters is for a GPU; no filter lets every GPU through."""
    every = tuple(filters)
    actual = Match.NO if every else Match.YES
    for desired in map(parse_pci_id, every):
        if desired is None or (desired.device, desired.vendor) != (gpu.device, gpu.vendor):
            continue
        if desired.subsystem in (None, gpu.subsystem):
            return Match.YES
        if gpu.subsystem is None:
            actual = Match.MAYBE
    return actual
