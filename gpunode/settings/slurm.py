"""Settings of a Slurm node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from gpunode.base.tables.reading import Row, table
from gpunode.settings.component import Component, matching


@dataclass(frozen=True)
class Known(Row):
    """Hold the first Slurm with what gpunode writes, and how slurmctld begins the reason that devices give it."""

    first_with_autodetect_off: str
    first_with_multiple_files: str
    reason_of_devices: str


known = table(Known, "slurm.yaml")

NodeName = Annotated[
    str, matching(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9])?", "the NodeName of one node such as 'gpu-1'")
]
Type = Annotated[
    str,
    matching(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", "a type of GPUs such as 'h100', of letters, digits, '_', '.', '-'"),
]


class SlurmSettings(Component):
    """GPUs for a Slurm that is there already: gpunode installs none, and writes two files for it, each of which the
    site's own file includes: /etc/slurm/gpunode-gres.conf (`include` it in gres.conf) and /etc/slurm/gpunode-nodes.conf
    (in slurm.conf), made of the GPUs, or MIG devices, that the node has. `slurmd -G` judges them before they count;
    slurmd is restarted, which keeps jobs."""

    enabled: bool = False
    """true: write the files, and keep slurmd at them; false: what gpunode wrote of them goes, once nothing includes
    it."""
    node_name: NodeName | None = None
    """NodeName of the node; not given: the short host name, as `slurmd -C` prints it."""
    type: Type | None = None
    """Type of whole GPUs; not given: made of their product, such as `h100` or `rtx_4090`. That of a MIG device is its
    profile, such as `1g.10gb`."""
    autodetect: Literal["off", "nvml"] = "off"
    """`off`: the devices stand in the file one by one; `nvml`: slurmd asks NVML for devices, cores and links at its
    start, which takes a Slurm that was built with it (Debian's was not)."""
    cores: bool = True
    """Write which cores are near each GPU, where these are not all; takes a NodeName line with the real sockets and
    cores. With `autodetect: nvml` slurmd finds them."""
    node_line: bool = True
    """Write the NodeName line with Gres= to gpunode-nodes.conf; false: the site's own line says it, and is compared
    with what the node has."""
    node_hardware: bool = False
    """In that line, say CPUs, sockets, cores, threads and RealMemory, too, as `slurmd -C` measures them; false: that is
    the site's, by a line `NodeName=DEFAULT …` before the include."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield hardware for a line that is not written, and a name for a type that NVML finds."""
        if self.node_hardware and not self.node_line:
            yield "node_hardware", "is a part of the line that slurm.node_line = False leaves out"
