"""What a person is told to do by hand, in the words of the node's own package manager."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from gpunode.base import tables
from gpunode.base.tables.reading import Row, Table, table
from gpunode.system.boot import Kernel
from gpunode.system.operating_system import OperatingSystem


@dataclass(frozen=True)
class Wording(Row):
    """Hold what people type with one package manager (wording.yaml).

    elsewhere: package that the distribution itself lacks -> where it is
    """

    installed: str
    owner: str
    install: str
    again: str
    remove: str
    offered: str
    unfinished: str
    initramfs: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def to_install(self, names: Collection[str]) -> str:
        """Return how packages are installed, and where those are that the distribution itself has not."""
        notes = "; ".join(f"{name} is in {place}" for name, place in self.elsewhere.items() if name in names)
        return f"{self.install} {' '.join(names)}" + (f" ({notes})" if notes else "")


_words = table(Table[str, Wording], "wording.yaml")  # type: ignore[type-abstract]


def wording(system: OperatingSystem) -> Wording:
    """Return the words for a node's operating system."""
    distribution = tables.distribution(system.id, system.version_id)
    found = _words()[distribution.family if distribution else "unknown"]
    return found if distribution is None or distribution.epel else replace(found, elsewhere={})


def headers_package(system: OperatingSystem, kernel: Kernel) -> str:
    """Return the package of a kernel's headers."""
    row = next((row for row in tables.driver_sources() if system.id in row.systems), None)
    named = row.for_kernels((kernel.base,) if kernel.base else ()).headers if row else "the headers of <kernel>"
    return named.replace("<kernel>", kernel.release)
