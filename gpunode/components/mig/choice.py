"""Which entry of a node's MIG configuration is for which of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpunode.components.mig.check import target
from gpunode.components.mig.device_filter import Match, PciId, matches
from gpunode.settings.mig import MigSettings
from gpunode.settings.mig_parted.declaration import Declaration, Entry, published, selected
from gpunode.system.pci import PciGpu


@dataclass(frozen=True)
class Chosen:
    """Hold what is asked of one GPU: product (None: in no table), entry (None: there is none), and its index."""

    gpu: PciGpu
    index: int
    product: str | None
    entry: Entry | None
    match: Match = Match.YES


def chosen(settings: MigSettings, gpus: Sequence[PciGpu]) -> Iterator[Chosen]:
    """Yield what each GPU is asked to be, by PCI address as nvidia-mig-parted counts them; raise DeclarationError."""
    declaration = settings.declaration() if settings.file else None
    if declaration is not None:
        selected(declaration, settings.config)
    for index, gpu in enumerate(gpus):
        found = target(f"0x{gpu.device_id}")
        product = found.product if found else None
        entries = _entries(settings, declaration, product)
        board = divmod(int(gpu.subsystem_id, 16), 0x10000) if gpu.subsystem_id else None
        pci = PciId(int(gpu.device_id, 16), int(gpu.vendor, 16), board)
        # Of several entries for a GPU the last one counts.
        entry, match = None, Match.YES
        for each in entries:
            matched = matches(each.device_filter, pci)
            if each.has_index(index) and matched is not Match.NO:
                entry, match = each, matched
        yield Chosen(gpu, index, product, entry, match)


def _entries(settings: MigSettings, declaration: Declaration | None, product: str | None) -> tuple[Entry, ...]:
    if declaration is None and product is not None:
        declaration = published(product)
    return () if declaration is None else declaration.configs.get(settings.config or "", ())
