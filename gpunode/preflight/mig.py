"""Is the driver new enough for MIG on the node's GPUs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode import tables, versions
from gpunode.pci import PciGpu
from gpunode.preflight.flavour import WantedDriver, named
from gpunode.preflight.verdicts import Caution, Refusal
from gpunode.requirements import mig_product
from gpunode.settings import Settings

_MIG = "MIG user guide, deployment considerations (gpunode/data/minimums.yaml, mig_minimum_driver)"


def mig_refusals(settings: Settings, gpus: Sequence[PciGpu], wanted: WantedDriver) -> Iterator[Refusal]:
    """Refuse a MIG configuration with a driver that is too old for MIG on a GPU of the node."""
    if settings.mig.config is None or not wanted.is_known:
        return
    seen = set()
    for gpu in gpus:
        product = mig_product(gpu.name or "")
        if product is None or product in seen:
            continue
        seen.add(product)
        minimum = tables.mig_minimum_driver()[product]
        if not wanted.at_least(minimum):
            yield Refusal(
                "mig",
                f"MIG on {named(gpu)} needs driver {minimum} or newer, and the driver is {wanted}",
                _MIG,
                f"set driver.branch to '{versions.branch_of(minimum)}' or newer, or leave mig.config out",
            )


def mig_cautions(settings: Settings) -> Iterator[Caution]:
    """Tell that a MIG configuration is judged, not applied."""
    if settings.mig.config is not None:
        yield Caution(
            "mig",
            f"mig.config {settings.mig.config!r} is judged against driver and GPUs only; this version of gpunode does "
            "not create MIG instances",
            "docs/settings.md",
            "apply the layout with nvidia-mig-parted, or leave mig.config out",
        )
