"""The instances of one SIMULATED GPU, which its driver keeps until it is unloaded or the GPU is reset."""

from __future__ import annotations

from types import SimpleNamespace

from ...holders import holders
from ...machine import SimulatedGpu
from ...plain import name_uuid
from ..session import Session
from .nvml import in_use, insufficient_resources, invalid_argument, unknown_error
from .table import Profile, profiles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

# Sizes of compute instances that a GPU instance of so many slices may hold, and their profiles' ids.
_COMPUTE_SIZES = {1: (1,), 2: (1, 2), 3: (1, 2, 3), 4: (1, 2, 4), 7: (1, 2, 3, 4, 7)}
_COMPUTE_IDS = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
_NAMESPACE = bytes.fromhex("3f6e3f0e9a574f0c8b1b0a4c2d9b7a61")


class ComputeInstance(SimpleNamespace):
    """Hold a compute instance: slices `start` to `start + size - 1` of its GPU instance's."""

    id: int
    profile_id: int
    start: int
    size: int
    uuid: str


class GpuInstance:
    """Hold a GPU instance: memory slices `start` to `start + profile.size - 1`."""

    def __init__(self, id: int, profile: Profile, start: int, compute: tuple[ComputeInstance, ...]) -> None:
        self.id = id
        self.profile = profile
        self.start = start
        self.compute = compute

    def compute_name(self, size: int) -> str:
        """Return what a compute instance of so many slices is called."""
        return self.profile.name if size == self.profile.compute else f"{size}c.{self.profile.name}"

    def compute_profiles(self) -> dict[int, int]:
        """Return the compute instance profiles: id -> slices."""
        whole = self.profile.compute
        return {self.profile.whole if size == whole else _COMPUTE_IDS[size]: size for size in _COMPUTE_SIZES[whole]}

    def compute_starts(self, size: int) -> list[int]:
        """Return where compute instances of so many slices may stand: nobody recorded it, the counts agree."""
        step = {1: 1, 2: 2}.get(size, 4)
        return [start for start in range(0, self.profile.compute, step) if start + size <= self.profile.compute]

    def free_compute_starts(self, size: int) -> list[int]:
        """Return those of them where nothing stands."""
        taken = {piece for each in self.compute for piece in range(each.start, each.start + each.size)}
        return [start for start in self.compute_starts(size) if taken.isdisjoint(range(start, start + size))]


class Instances:
    """Change what stands on one GPU. Every change is on the machine before the next one begins."""

    def __init__(self, session: Session, gpu: SimulatedGpu) -> None:
        self._session = session
        self.gpu = gpu
        self.profiles = profiles(gpu.model.mig or "")

    def __iter__(self) -> Iterator[GpuInstance]:
        """Go through the GPU instances in nvidia-smi's order: by NVML's number of the profile, then by id."""
        by_id = {profile.id: profile for profile in self.profiles}
        found = [
            GpuInstance(row["id"], by_id[row["profile"]], row["start"], _compute(row["compute"]))
            for row in self._rows()
        ]
        return iter(sorted(found, key=lambda each: (each.profile.order, each.id)))

    def _rows(self) -> list[dict[str, Any]]:
        rows: Any = self._session.runtime(self.gpu).get("instances", [])
        return [dict(row) for row in rows]

    def _keep(self, rows: list[dict[str, Any]], what: str) -> None:
        self._session.set_instances(self.gpu, rows)
        self._session.machine.log("mig", f"GPU {self.gpu.index}: {what}")
        self._session.changed_instance()

    def profile(self, asked: str) -> Profile:
        """Return the profile of an id or a name; NvmlError: the GPU has none such."""
        for profile in self.profiles:
            if asked in (str(profile.id), profile.name):
                return profile
        raise invalid_argument()

    def free(self, profile: Profile) -> int:
        """Return how many more instances of a profile find room."""
        return min(len(self._free_starts(profile)), profile.most - sum(each.profile == profile for each in self))

    def _free_starts(self, profile: Profile) -> list[int]:
        """Return where an instance could stand, the driver's first choice first."""
        there = list(self)
        compute = max(each.compute for each in self.profiles) - sum(each.profile.compute for each in there)
        media = profile.media and any(each.profile.media for each in there)
        most = sum(each.profile == profile for each in there) >= profile.most
        if compute < profile.compute or media or most:
            return []
        taken = {piece for each in there for piece in range(each.start, each.start + each.profile.size)}
        return [start for start in profile.tries if taken.isdisjoint(range(start, start + profile.size))]

    def create(self, profile: Profile, start: int | None) -> GpuInstance:
        """Create a GPU instance where it is asked for, or where the driver likes; NvmlError: it cannot."""
        if start is not None and start not in profile.tries:
            raise invalid_argument()
        free = self._free_starts(profile)
        if not free or (start is not None and start not in free):
            raise insufficient_resources()
        if self._session.creation_fails(self.gpu):
            raise unknown_error()
        chosen = free[0] if start is None else start
        number = self._number(profile, chosen)
        row = {"id": number, "profile": profile.id, "start": chosen, "compute": []}
        self._keep([*self._rows(), row], f"created GPU instance {number}, {profile.name}:{chosen}")
        return next(each for each in self if each.id == number)

    def _number(self, profile: Profile, start: int) -> int:
        """Return the id: halves have 1 and 2, quarters 3 to 6, and so on, as they lie on the memory axis."""
        slices = max(each.size for each in self.profiles)
        if profile.size == slices:
            return 0
        if profile.size * 2 == slices and slices > 4:
            # A 3g is 1 at 4 and 2 at 0, a 4g is 1 at 0: so the ids do not tell the place. On an A30 they do.
            first = 1 if profile.compute > 3 or start else 2
            return first if all(each.id != first for each in self) else 3 - first
        return slices // profile.size - 1 + start // profile.size

    def compute_sm(self, profile: Profile, size: int) -> int:
        """Return the multiprocessors of a compute instance of so many slices in a GPU instance of a profile."""
        one = min(self.profiles, key=lambda each: (each.compute, each.order)).sm
        return profile.sm if size == profile.compute else one * size

    def create_compute(self, instance: GpuInstance, size: int, start: int | None = None) -> ComputeInstance:
        """Create a compute instance of so many slices; NvmlError: there is no room for it."""
        if start is not None and start not in instance.compute_starts(size):
            raise invalid_argument()
        free = [each for each in instance.free_compute_starts(size) if start in (None, each)]
        if not free:
            raise insufficient_resources()
        if self._session.compute_fails():
            raise unknown_error()
        used = {each.id for each in instance.compute}
        number = next(number for number in range(8) if number not in used)
        profile_id = next(key for key, slices in instance.compute_profiles().items() if slices == size)
        # Each creation gives a new one, so that whoever destroys what was to be kept is found out.
        name = name_uuid(_NAMESPACE, f"{self.gpu.uuid}/{instance.id}/{number}/{self._session.next_serial(self.gpu)}")
        made = ComputeInstance(id=number, profile_id=profile_id, start=free[0], size=size, uuid=f"MIG-{name}")
        rows = self._rows()
        next(row for row in rows if row["id"] == instance.id)["compute"].append(vars(made))
        self._keep(rows, f"created compute instance {number} of GPU instance {instance.id}, {made.uuid}")
        return made

    def destroy_compute(self, instance: GpuInstance, compute: ComputeInstance) -> None:
        """Destroy a compute instance; NvmlError: a process uses it."""
        if self._session.has("busy", self.gpu) or any(
            each.uses(instance.id) for each in holders(self._session.machine, self.gpu)
        ):
            raise in_use()
        rows = self._rows()
        row = next(row for row in rows if row["id"] == instance.id)
        row["compute"] = [each for each in row["compute"] if each["id"] != compute.id]
        self._keep(rows, f"destroyed compute instance {compute.id} of GPU instance {instance.id}, {compute.uuid}")

    def destroy(self, instance: GpuInstance) -> None:
        """Destroy a GPU instance; NvmlError: it has compute instances."""
        if instance.compute:
            raise in_use()
        rows = [row for row in self._rows() if row["id"] != instance.id]
        self._keep(rows, f"destroyed GPU instance {instance.id}, {instance.profile.name}:{instance.start}")


def mig_devices(session: Session, gpu: SimulatedGpu) -> list[tuple[GpuInstance, ComputeInstance]]:
    """Return the MIG devices of a GPU: its compute instances, in the order of the ids of both kinds of instances."""
    if session.mig_modes(gpu)[0] != "Enabled":
        return []
    every = sorted(Instances(session, gpu), key=lambda each: each.id)
    return [(of, each) for of in every for each in sorted(of.compute, key=lambda compute: compute.id)]


def _compute(rows: list[dict[str, Any]]) -> tuple[ComputeInstance, ...]:
    """Return compute instances in nvidia-smi's order: by profile, then by id."""
    found = (ComputeInstance(**row) for row in rows)
    return tuple(sorted(found, key=lambda each: (each.profile_id, each.id)))
