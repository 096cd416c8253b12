"""What a node is to Slurm: its slurmd, the files, the GPUs and MIG devices, and what slurmctld says of it."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from gpunode.base.probe_output import cells, number, repeated, timestamp, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.versions import program_version
from gpunode.system.service import seconds
from gpunode.system.unit import starts_at_boot

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
    found = [core for core, cpus in enumerate(cores) if set(cpus) & set(near)]
    return ranges(found) if found and len(found) < len(cores) else None


FOLDER = "/etc/slurm"
# What the site's gres.conf includes, and its slurm.conf.
GRES, NODES = f"{FOLDER}/gpunode-gres.conf", f"{FOLDER}/gpunode-nodes.conf"
FILES = (GRES, NODES)
_CAPABILITY = re.compile(r"gpu(\d+)/mig/gi(\d+)(?:/ci(\d+))? (\d+)", re.ASCII)
_INCLUDE = re.compile(r"(/[^:]+):\s*include\s+(\S+)\s*(#.*)?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True)
class SlurmGpu(Reading):
    """Hold one GPU: its PCI address, the N of /dev/nvidiaN, its product, and the CPUs near it (none: not told)."""

    pci_address: str
    minor: int
    name: str
    near: tuple[int, ...] = ()


@dataclass(frozen=True)
class Capability(Reading):
    """Hold the device of a MIG instance: the N of /dev/nvidia-caps/nvidia-capN; compute: None for the GPU instance."""

    gpu: int
    instance: int
    compute: int | None
    minor: int


@dataclass(frozen=True)
class SlurmUnit(Reading):
    """Hold a daemon's unit. `stale`: it runs since before gpunode's files were last written."""

    active: bool
    enabled: bool
    stale: bool


@dataclass(frozen=True)
class Slurm(Reading):
    """Hold what a node is to Slurm.

    `version` is None where there is no slurmd. `hardware` is the node's line as `slurmd -C` prints it, `types` what
    GresTypes names, `texts` (path, text) of gpunode's files, `includes` (the file that says so, what it includes).
    `cores` are the CPUs of each core, in the order in which Slurm counts cores. `steps` counts the steps of jobs that
    run. `node` is what slurmctld says of the node; None where it did not answer.
    """

    version: str | None = None
    configured: bool = False
    nvml: bool = False
    hardware: str | None = None
    types: tuple[str, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()
    includes: tuple[tuple[str, str], ...] = ()
    slurmd: SlurmUnit | None = None
    slurmctld: SlurmUnit | None = None
    gpus: tuple[SlurmGpu, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    cores: tuple[tuple[int, ...], ...] = ()
    steps: int = 0
    node: str | None = None

    @property
    def host_name(self) -> str | None:
        """Return the node's name as slurmd takes it of the host."""
        return self.told_of(self.hardware, "NodeName")

    @property
    def gres(self) -> str | None:
        """Return the devices that slurmctld counts on the node; None where it does not say."""
        return self.told_of(self.node, "Gres")

    @property
    def reason(self) -> str | None:
        """Return why slurmctld gives the node no jobs, as whoever took it out has said."""
        _, found, text = (self.node or "").partition(" Reason=")
        return text.rpartition(" [")[0] or text if found else None

    @staticmethod
    def told_of(line: str | None, key: str) -> str | None:
        """Return the value of a key in one of Slurm's lines."""
        return next((word.partition("=")[2] for word in (line or "").split() if word.startswith(f"{key}=")), None)

    def included_in(self, path: str) -> str | None:
        """Return which of the site's files includes one of gpunode's; None where none does."""
        names = (path, path.rpartition("/")[2])
        return next((file for file, name in self.includes if name in names), None)


def parse_slurm(lines: list[str]) -> Slurm:
    """Parse the probe's lines (gpunode/components/slurm/state.sh)."""
    found = values(lines)
    written = [timestamp(text) for text in repeated(lines, "written")]
    units = dict(_unit(line, max(written, default=0.0)) for line in repeated(lines, "unit"))
    return Slurm(
        version=program_version(found.get("version")),
        configured=found.get("configured") == "yes",
        nvml=found.get("nvml") == "yes",
        hardware=found.get("hardware"),
        types=tuple(_types(repeated(lines, "types"))),
        texts=tuple(_text(line) for line in repeated(lines, "file")),
        includes=tuple(
            (match[1], match[2]) for line in repeated(lines, "include") if (match := _INCLUDE.fullmatch(line))
        ),
        slurmd=units.get("slurmd"),
        slurmctld=units.get("slurmctld"),
        gpus=tuple(_gpu(line) for line in repeated(lines, "gpu")),
        capabilities=tuple(_capability(line) for line in repeated(lines, "capability")),
        cores=cores_of(repeated(lines, "cpu")),
        steps=number(found.get("steps", "0")),
        node=found.get("node"),
    )


def _types(lines: Iterable[str]) -> list[str]:
    # A later line of slurm.conf takes the place of an earlier one.
    last = [line.partition("=")[2].partition("#")[0] for line in lines][-1:]
    return [name.strip().lower() for text in last for name in text.split(",") if name.strip()]


def _text(line: str) -> tuple[str, str]:
    path, _, encoded = line.partition(" ")
    try:
        return path, base64.b64decode(encoded, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError) as error:
        raise ParseError(f"{path[:80]} is not base64: {error}") from error


def _unit(line: str, written: float) -> tuple[str, SlurmUnit]:
    name, active, enabled, started = cells(line, 4)
    stale = bool(started) and written > seconds(started)
    return name, SlurmUnit(active == "active", starts_at_boot(enabled), stale)


def _gpu(line: str) -> SlurmGpu:
    address, minor, near, name = cells(line, 4)
    return SlurmGpu(address, number(minor), name, numbers(near))


def _capability(line: str) -> Capability:
    match = _CAPABILITY.fullmatch(line)
    if match is None:
        raise ParseError(f"not a capability: {line[:80]!r}")
    return Capability(int(match[1]), int(match[2]), None if match[3] is None else int(match[3]), int(match[4]))
