"""What `nvidia-smi -L` lists: GPUs, and below each the MIG devices that it is divided into.

source: NVIDIA's own program, 535 and 550, whose words are kept with the lab's golden texts
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gpunode.base.reading import Reading

_GPU = re.compile(r"GPU (\d{1,4}): .*\(UUID: (GPU-[0-9A-Za-z-]+)\)", re.ASCII)
_DEVICE = re.compile(r"MIG (\S+?)\s*Device\s+\d+: \(UUID: (MIG-[0-9A-Za-z/-]+)\)", re.ASCII)


@dataclass(frozen=True)
class ListedGpu(Reading):
    """Hold a GPU: its index, its UUID, and its MIG devices as (profile, UUID)."""

    index: int
    uuid: str
    mig: tuple[tuple[str, str], ...] = ()


def parse_list(lines: Iterable[str]) -> tuple[ListedGpu, ...]:
    """Return the GPUs that lines name; what is no line of the list is passed over, for the program warns among them."""
    found: list[ListedGpu] = []
    for line in map(str.strip, lines):
        if match := _GPU.fullmatch(line):
            found.append(ListedGpu(int(match[1]), match[2]))
        elif found and (match := _DEVICE.fullmatch(line)):
            found[-1] = replace(found[-1], mig=(*found[-1].mig, (match[1], match[2])))
    return tuple(found)
