"""A SIMULATED GPU in MIG mode: it takes explicit placements alone, and refuses what a real one would.

It knows nothing of the planner: legal starts, sizes and maxima are read from the table's rows as they stand there.
"""

from __future__ import annotations

from collections import Counter
from importlib import resources
from typing import Any

import yaml

TABLE: dict[str, Any] = yaml.safe_load(resources.files("gpunode.data").joinpath("mig.yaml").read_text(encoding="utf-8"))
# Profile id of the seven-slice geometry by a profile's name on an H100 80GB, and of the four-slice one on an A30.
PROFILE_IDS = {
    "H100-80GB": {
        "1g.10gb": 19, "1g.10gb+me": 20, "1g.20gb": 15, "2g.20gb": 14, "3g.40gb": 9, "4g.40gb": 5, "7g.80gb": 0
    },
    "A30-24GB": {"1g.6gb": 14, "1g.6gb+me": 21, "2g.12gb": 5, "2g.12gb+me": 6, "4g.24gb": 0},
}  # fmt: skip


class Refused(Exception):
    """Say why the simulated GPU did nothing."""


class SimulatedGpu:
    """Hold GPU instances as (profile, start) -> identity; every instance ever created has its own."""

    def __init__(self, product: str) -> None:
        row = TABLE["products"][product]
        rows = {shape["profile_id"]: shape for shape in TABLE["geometries"][row["geometry"]]}
        self._shapes = {name: rows[number] for name, number in PROFILE_IDS[product].items()}
        self._maxima: dict[str, int] = row["profiles"]
        self.instances: dict[tuple[str, int], str] = {}
        self._made = 0

    def _slots(self, profile: str, start: int) -> set[int]:
        return set(range(start, start + self._shapes[profile]["size"]))

    def create(self, profile: str, start: int) -> None:
        """Create one instance at an explicit start; Refused if it is not legal there, or the slots are taken."""
        if start not in self._shapes[profile]["starts"]:
            raise Refused(f"{profile}:{start}: not a legal start")
        for other in self.instances:
            if self._slots(*other) & self._slots(profile, start):
                raise Refused(f"{profile}:{start}: insufficient resources, {other} is there")
        if sum(name == profile for name, _ in self.instances) == self._maxima[profile]:
            raise Refused(f"{profile}:{start}: there are {self._maxima[profile]} already")
        if sum(self._shapes[name]["compute"] for name in (*(name for name, _ in self.instances), profile)) > 7:
            raise Refused(f"{profile}:{start}: no compute slices are left")
        self._made += 1
        self.instances[profile, start] = f"MIG-{self._made}"

    def destroy(self, profile: str, start: int) -> None:
        """Destroy the instance that stands there; KeyError if there is none."""
        del self.instances[profile, start]

    def layout(self) -> dict[str, int]:
        """Return profile -> count."""
        return dict(Counter(name for name, _ in self.instances))
