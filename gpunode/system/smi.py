"""What a reading asks nvidia-smi once, for GPUs, health and MIG alike, and its answer (gpunode/system/smi.sh)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from gpunode.base.probe import Shared, shell_text
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading

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


# persistence_mode right before pci.device_id, and the power between ECC's two modes: gpunode/components/mig/smi.sh
# looks for MIG's two modes side by side.
QUERY = (
    "index",
    "uuid",
    "name",
    "pci.bus_id",
    "driver_version",
    "memory.total",
    "mig.mode.current",
    "mig.mode.pending",
    "compute_mode",
    "persistence_mode",
    "pci.device_id",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.uncorrected.aggregate.total",
    "ecc.mode.current",
    "power.limit",
    "power.default_limit",
    "power.min_limit",
    "power.max_limit",
    "ecc.mode.pending",
    "clocks.applications.memory",
    "clocks.applications.graphics",
    "clocks.default_applications.memory",
    "clocks.default_applications.graphics",
    "clocks.max.memory",
    "clocks.max.graphics",
    "clocks.mem",
    "clocks.gr",
)
# Those that every driver from 470 on answers. Without the others power limits and clocks are not told.
LEAST = QUERY[: QUERY.index("power.limit")]
# The fields of a query of their own.
REMAPPED = ("gpu_bus_id", "remapped_rows.pending", "remapped_rows.failure")
# The shared part of probes that prints the answer of nvidia-smi; a probe may add the query of remapped rows.
SMI = Shared(
    shell_text("system/smi", QUERY=",".join(QUERY), LEAST=",".join(LEAST), REMAPPED=",".join(REMAPPED)), variable="ALSO"
)

# nvidia-smi's manual: 14 is a corrupted infoROM. It tells of the GPUs all the same, and warns behind that.
ANSWERED = (0, 14)
# nvidia-smi exits with NVML's codes (golden/README.md); 124 and 137 are timeout's own.
STATUS = {0: "ok", 9: "no driver", 12: "no library", 14: "ok", 15: "lost", 18: "mismatch", 124: "hangs", 137: "hangs"}
# The states where no driver runs.
DRIVERLESS = ("absent", "no driver", "no library", "mismatch")
_WARNING = "WARNING"
# What a GPU answers that has no value, and what stands for one that was not asked for.
NOT_TOLD = "[N/A]"
# What a GPU answers that lacks something; one that answers anything else in brackets is broken.
WITHOUT_VALUE = (NOT_TOLD, "[Not Supported]")
NOT_INSTALLED = "nvidia-smi is not installed"
NOT_ASKED = "nvidia-smi was not asked: the kernel module nvidia is not loaded, and to ask would load it"


@dataclass(frozen=True)
class Answer:
    """Hold how nvidia-smi ended and what it printed.

    `status` is one of STATUS, absent (not installed) or error; `exit_code` is None where it was not asked. `message`
    is what it said instead of rows; `rows` are its rows by the fields' names, `warnings` its lines that warn.
    """

    status: str
    exit_code: int | None
    message: str | None
    rows: tuple[dict[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def parse_answer(lines: list[str]) -> Answer:
    """Parse `absent=yes`, `unloaded=yes`, or `gpu.rc=N` with one `gpu=` line per line that nvidia-smi printed."""
    found = values(lines)
    if found.get("absent") == "yes":
        return Answer("absent", None, NOT_INSTALLED)
    if found.get("unloaded") == "yes":
        return Answer("no driver", None, NOT_ASKED)
    exit_code = exit_code_of(found, "gpu")
    printed, warned = data(lines, "gpu"), warnings(lines, "gpu")
    status = STATUS.get(exit_code, "error")
    if status != "ok":
        return Answer(status, exit_code, (*printed, *warned, None)[0], warnings=warned)
    if printed and printed[0].startswith("No devices were found"):
        return Answer(status, exit_code, printed[0], warnings=warned)
    untold = dict.fromkeys(QUERY[len(LEAST) :], NOT_TOLD)
    found_rows = (row if len(row) == len(QUERY) else row | untold for row in rows(printed, QUERY, LEAST))
    return Answer(status, exit_code, None, tuple(found_rows), warned)


def data(lines: list[str], key: str) -> list[str]:
    """Return what nvidia-smi printed under KEY, without empty lines and those that warn: these are no data."""
    return [line for line in map(str.strip, repeated(lines, key)) if line and not line.startswith(_WARNING)]


def warnings(lines: list[str], key: str) -> tuple[str, ...]:
    """Return the lines under KEY in which nvidia-smi warns, each once."""
    return tuple(dict.fromkeys(line for line in map(str.strip, repeated(lines, key)) if line.startswith(_WARNING)))


def exit_code_of(found: dict[str, str], key: str) -> int:
    """Return the exit code that stands under KEY.rc; raise ParseError where there is none."""
    code = found.get(f"{key}.rc", "")
    if not (code.isascii() and code.isdecimal()):
        raise ParseError(f"the probe did not say nvidia-smi's exit code ({key}): {code[:40]!r}")
    return int(code)


def rows(lines: list[str], query: tuple[str, ...], least: tuple[str, ...] = ()) -> Iterator[dict[str, str]]:
    """Yield each row by the fields' names; raise ParseError for a line that has another number of columns.

    least: the fields of which a row may have no others
    """
    for line in lines:
        cells = [cell.strip() for cell in next(csv.reader([line]))]
        if len(cells) not in (len(query), len(least)):
            raise ParseError(f"nvidia-smi printed {len(cells)} of {len(query)} columns: {line[:120]!r}")
        row = dict(zip(query if len(cells) == len(query) else least, cells, strict=True))
        if not row.get("index", "0").isdecimal():
            raise ParseError(f"nvidia-smi printed no GPU index: {line[:120]!r}")
        yield row


def address(text: str) -> str:
    """Return a PCI address as everywhere else: 00000000:1A:00.0 is 0000:1a:00.0."""
    lowered = text.strip().lower()
    return lowered.removeprefix("0000") if len(lowered.split(":")[0]) == 8 else lowered
