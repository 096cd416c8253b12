"""The profiles of each GPU product, from mig.json: where their instances may stand, and what nvidia-smi lists."""

from __future__ import annotations

from types import SimpleNamespace

from ...plain import data_file, parse_json

# The parts of a GPU's memory are multiples of this many MiB, as far as they were recorded.
_GRAIN = 64


class Profile(SimpleNamespace):
    """Hold a GPU instance profile.

    `tries` are its starts in the order in which the driver tries them, `order` is NVML's number of the profile, in
    whose order nvidia-smi goes through instances. `whole` is the id of the compute instance profile that takes all of
    an instance. `memory` (GiB), `sm` and the engines are nvidia-smi's columns; those of other products than A100 40GB,
    H100 80GB, H200 and A30 are near the real ones, not read from them.
    """

    name: str
    id: int
    order: int
    tries: tuple[int, ...]
    size: int
    compute: int
    most: int
    whole: int
    memory: str
    sm: int
    dec: str
    enc: str
    ce: str
    jpeg: str
    ofa: str

    @property
    def media(self) -> bool:
        """Say whether it takes the engines of which a GPU has one for all of its parts."""
        return self.name.endswith("+me")

    @property
    def memory_mib(self) -> int:
        """Return the memory in MiB, of which the column in GiB shows two decimals: 20096 for 19.62."""
        return round(float(self.memory) * 1024 / _GRAIN) * _GRAIN


_ENGINES = ("dec", "enc", "ce", "jpeg", "ofa")


def profiles(product: str) -> tuple[Profile, ...]:
    """Return the product's profiles in the order of nvidia-smi's list."""
    table = parse_json(data_file("mig.json"))
    row = table["products"][product]
    found = []
    for shape, rule in table["geometries"][row["geometry"]].items():
        name, memory, sm, *engines = row["profiles"][shape]
        columns = dict(zip(_ENGINES, engines, strict=True))
        found.append(
            Profile(name=name, **{**rule, "tries": tuple(rule["tries"])}, memory=memory, sm=int(sm), **columns)
        )
    return tuple(found)
