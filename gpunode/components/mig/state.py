"""What MIG is on a node's GPUs: modes, instances with their places and UUIDs, and the GPUs' own lists of profiles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpunode.base.reading import ParseError, Reading
from gpunode.components.mig.geometry import Geometry, Spot, geometry_of
from gpunode.settings.mig_parted.document import ProfileError, parse_profile

_PROFILE = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+MIG (?P<name>\S+)\s+(?P<id>\d+)\s+(?P<free>\d+)/(?P<total>\d+)\s.*\|", re.ASCII
)
_PLACEMENTS = re.compile(
    r"GPU\s+(?P<gpu>\d+) Profile ID\s+(?P<id>\d+) Placements? ?: ?\{(?P<starts>\d+(?:,\d+)*)\}:(?P<size>\d+)", re.ASCII
)
# Profile id -> (name, how many of it fit), and profile id -> (starts, size).
Profiles = Mapping[int, tuple[str, int]]
Placements = Mapping[int, tuple[tuple[int, ...], int]]


def own_geometry(profiles: Profiles, placements: Placements) -> Geometry:
    """Return the geometry of a GPU by its own lists; raise ParseError where they do not speak of the same profiles."""
    if not profiles or set(profiles) != set(placements):
        listed, placed = sorted(profiles), sorted(placements)
        raise ParseError(f"the GPU lists the profiles {listed}, and placements of {placed}")
    try:
        return geometry_of(
            Spot(parse_profile(name), *placements[number], total, number) for number, (name, total) in profiles.items()
        )
    except ProfileError as error:
        raise ParseError(f"the GPU lists a profile that is none: {error}") from None


def parse_profile_rows(lines: Iterable[str]) -> dict[int, dict[int, tuple[str, int, int]]]:
    """Parse `nvidia-smi mig -lgip`: GPU index -> profile id -> (name, how many more fit now, how many at most).

    Raise ParseError.
    """
    found: dict[int, dict[int, tuple[str, int, int]]] = {}
    for line in filter(None, map(str.strip, lines)):
        if line[0] not in "|+":
            raise ParseError(f"not a profile of nvidia-smi mig -lgip: {line[:120]!r}")
        # Heads, rules and each profile's second row are not of its form.
        if match := _PROFILE.fullmatch(line):
            row = match["name"], int(match["free"]), int(match["total"])
            found.setdefault(int(match["gpu"]), {})[int(match["id"])] = row
    return found


def parse_placements(lines: Iterable[str]) -> dict[int, dict[int, tuple[tuple[int, ...], int]]]:
    """Parse `nvidia-smi mig -lgipp`: GPU index -> profile id -> (starts, size); raise ParseError."""
    found: dict[int, dict[int, tuple[tuple[int, ...], int]]] = {}
    for line in filter(None, map(str.strip, lines)):
        match = _PLACEMENTS.fullmatch(line)
        if match is None:
            raise ParseError(f"not a placement of nvidia-smi mig -lgipp: {line[:120]!r}")
        starts = tuple(map(int, match["starts"].split(",")))
        found.setdefault(int(match["gpu"]), {})[int(match["id"])] = starts, int(match["size"])
    return found


ENABLED, DISABLED = "Enabled", "Disabled"


@dataclass(frozen=True)
class ComputeInstance(Reading):
    """Hold one compute instance: its slices are `start` to `start + size - 1` of its GPU instance's.

    `uuid` is that of the MIG device that it is; None where nvidia-smi -L and the list of instances do not agree.
    """

    id: int
    profile_id: int
    profile: str
    start: int
    size: int
    uuid: str | None = None


@dataclass(frozen=True)
class GpuInstance(Reading):
    """Hold one GPU instance: its memory slices are `start` to `start + size - 1`; `id` is the driver's, by chance."""

    id: int
    profile_id: int
    profile: str
    start: int
    size: int
    compute: tuple[ComputeInstance, ...] = ()


@dataclass(frozen=True)
class OwnProfile(Reading):
    """Hold a profile of the GPU's own list: how many more of it fit now and how many at most, and its legal places."""

    profile_id: int
    name: str
    free: int
    total: int
    starts: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class MigGpu(Reading):
    """Hold a GPU by index, UUID and PCI address; `name` is the product as nvidia-smi has it, `device_id` as 2330.

    `current` and `pending` are MIG mode now and after the next reset: Enabled, Disabled or [N/A] (it has no MIG).
    `instances` is None where they could not be read: then nothing may be changed. `profiles` are empty where MIG mode
    is off, for then nvidia-smi does not list them.
    """

    index: int
    uuid: str
    pci_address: str
    device_id: str
    name: str
    current: str
    pending: str
    instances: tuple[GpuInstance, ...] | None = ()
    profiles: tuple[OwnProfile, ...] = ()

    @property
    def capable(self) -> bool:
        """Say whether this GPU, with this driver, can be divided at all."""
        return self.current in (ENABLED, DISABLED)

    @property
    def enabled(self) -> bool:
        """Say whether MIG mode is on now."""
        return self.current == ENABLED

    @property
    def settled(self) -> bool:
        """Say whether no change of the mode waits for a reset or a boot."""
        return self.current == self.pending

    @cached_property
    def own_geometry(self) -> Geometry | None:
        """Return the geometry by the GPU's own lists; None where it has given none. ParseError: they contradict."""
        if not self.profiles:
            return None
        return own_geometry(
            {each.profile_id: (each.name, each.total) for each in self.profiles},
            {each.profile_id: (each.starts, each.size) for each in self.profiles},
        )


@dataclass(frozen=True)
class Holder(Reading):
    """A process that has a GPU, or one of its GPU instances, open.

    gpu: UUID; instance: the id of the GPU instance, None: the whole GPU
    container: the short ID of its container; in_pod: whether that is a pod's
    """

    gpu: str
    pid: int
    program: str
    user: str
    instance: int | None = None
    unit: str | None = None
    container: str | None = None
    in_pod: bool = False

    def __str__(self) -> str:
        """Describe the process as the transaction does (templates/scripts/mig_holders.sh)."""
        where = f", container {self.container}" if self.container else ""
        unit = f", unit {self.unit}" if self.unit else ""
        return f"process {self.pid} ({self.program}) of {self.user}{where}{unit}"


@dataclass(frozen=True)
class Mig(Reading):
    """Hold every GPU that nvidia-smi lists, and who has them open.

    `status` is ok; or why there is no answer, in the words of gpunode.system.gpu: absent (no nvidia-smi), no driver, no
    library, lost, mismatch, hangs, error; or unreadable: modes are known, instances are not. `message` says more.
    """

    status: str
    message: str | None = None
    gpus: tuple[MigGpu, ...] = ()
    holders: tuple[Holder, ...] = ()

    def gpu(self, uuid: str) -> MigGpu | None:
        """Return the GPU of that UUID."""
        return next((each for each in self.gpus if each.uuid == uuid), None)
