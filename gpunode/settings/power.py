"""Settings of the GPUs' power limit, clocks and ECC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from gpunode.settings.component import Component, matching
from gpunode.settings.driver import DriverSettings

Product = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,78}[A-Za-z0-9)]",
        "a GPU's name as `nvidia-smi -L` prints it, such as 'NVIDIA H100 80GB HBM3'",
    ),
]
_MHZ = r"[1-9]\d{1,4}"
Clocks = Annotated[str, matching(rf"{_MHZ},{_MHZ}", "two clocks in MHz such as '2619,1980': memory, then graphics")]
Range = Annotated[
    str, matching(rf"(0|{_MHZ}),{_MHZ}", "the lowest and the highest clock in MHz such as '1200,1500', or twice one")
]


class PowerSettings(Component):
    """Power limit, clocks and ECC of the GPUs, read back from each GPU (docs/power.md). What is left out is left as it
    is; what a former run set goes back to the GPU's default. The driver forgets limit and clocks when it is unloaded:
    gpunode-power.service brings them back. Persistence mode, without which the last program that ends takes them along,
    is `driver.persistenced`."""

    limit: int | None = Field(None, ge=1)
    """Power limit in watts of every GPU, within what the GPU takes (`nvidia-smi -q -d POWER`)."""
    limits: dict[Product, int] = Field(default_factory=dict, max_length=64)
    """The same by the GPU's name: `{'NVIDIA H100 80GB HBM3': 600}`; it counts before `limit`."""
    application_clocks: Clocks | None = None
    """Clocks in MHz for programs, memory and then graphics: `2619,1980`. Not beside locked clocks; NVIDIA has
    deprecated them with CUDA 13, and a GPU that has them no more is refused."""
    locked_graphics_clocks: Range | None = None
    """Lowest and highest graphics clock in MHz: `1200,1500`. No driver tells which clocks are locked: what is read back
    is its answer, and that the GPU does not run faster."""
    locked_memory_clocks: Range | None = None
    """Lowest and highest memory clock in MHz; as above."""
    ecc: bool | None = None
    """ECC of the GPU's memory. The GPU keeps it, and changes with a boot: at `disruption.allow: reboot` a run boots the
    node, else it is reported as pending. Left out: it stays as it is."""

    @property
    def is_asked(self) -> bool:
        """Say whether anything is asked for."""
        return bool(self.asked)

    @property
    def asked(self) -> tuple[str, ...]:
        """Return the names of the settings that ask for something."""
        return tuple(name for name in type(self).model_fields if getattr(self, name) not in (None, {}))

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a limit of no watts, both kinds of clocks, and a range from high to low."""
        for product, watts in self.limits.items():
            if watts < 1:
                yield "limits", f"has {watts} W for {product}; 1 or more is allowed"
        locked = [name for name in ("locked_graphics_clocks", "locked_memory_clocks") if getattr(self, name)]
        if self.application_clocks is not None and locked:
            names = " and ".join(f"power.{name}" for name in locked)
            yield "application_clocks", f"sets the same clocks as {names}; leave one of them out"
        for name in locked:
            low, high = map(int, getattr(self, name).split(","))
            if low > high:
                yield name, "has its higher clock first; write the lowest and then the highest"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what needs a driver that is to go, and what would be lost whenever the last program ends."""
        driver = others.get("driver")
        if not isinstance(driver, DriverSettings):
            return
        for name in self.asked:
            if driver.is_elsewhere:
                yield name, f"is told by a driver at '/' alone, and driver.root is {driver.root!r}; leave it out"
            elif driver.removes:
                yield name, "needs the driver, which driver.source = 'absent' removes; leave it out, or keep the driver"
            elif driver.installs and not driver.persistenced and name != "ecc":
                yield name, "is forgotten by the driver when the last program ends; set driver.persistenced = True"
