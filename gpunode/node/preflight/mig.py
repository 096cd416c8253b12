"""Can driver and GPUs hold the MIG configuration that is asked for?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, Refusal
from gpunode.components.driver.flavour import WantedDriver, named
from gpunode.components.mig.cautions import cautions_of
from gpunode.components.mig.choice import Chosen
from gpunode.components.mig.choice import chosen as of_gpus
from gpunode.components.mig.device_filter import Match
from gpunode.components.mig.goal import Verdict, judge, nearest_layouts
from gpunode.components.mig.placement import text
from gpunode.node.preflight.words import caution, refusal
from gpunode.node.requirements import mig_product
from gpunode.settings import Settings
from gpunode.settings.mig_parted.declaration import Declaration
from gpunode.settings.mig_parted.mistakes import DeclarationError
from gpunode.settings.mig_parted.published import published
from gpunode.system.pci import PciGpu


def mig_refusals(settings: Settings, gpus: Sequence[PciGpu], desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a configuration that divides GPUs without MIG, has no place on one, or for which its driver is too old."""
    if settings.mig.config is None:
        return
    try:
        chosen = tuple(of_gpus(settings.mig, gpus))
    except DeclarationError as error:
        # It was read when the settings were validated, and has changed since.
        yield refusal("mig-file-wrong", error=error, mistake=error.mistakes[0], file=str(settings.mig.file))
        return
    yield from _driver_refusals([item.gpu for item in chosen if item.entry and item.entry.mig_enabled], desired)
    yield from _without_mig(settings, chosen)
    yield from _placement_refusals(settings, chosen)


def _without_mig(settings: Settings, chosen: Sequence[Chosen]) -> Iterator[Refusal]:
    """Refuse to divide a GPU that cannot be; where another GPU of the node can be, one that no entry is for stays."""
    lacking = [each for each in chosen if _has_no_mig(each.gpu)]
    alone = len(lacking) == len(chosen) and settings.mig.config != "all-disabled"
    seen = set()
    for each in lacking:
        divided = each.entry.mig_enabled if each.entry is not None else alone and settings.mig.file is None
        if divided and each.gpu.device_id not in seen:
            seen.add(each.gpu.device_id)
            yield refusal("mig-has-none", named=named(each.gpu), config=repr(settings.mig.config))


def _has_no_mig(gpu: PciGpu) -> bool:
    known = tables.pci_device(gpu.device_id)
    return known is not None and known.chip.startswith(tables.mig().chips_without)


def _driver_refusals(gpus: Sequence[PciGpu], desired: WantedDriver) -> Iterator[Refusal]:
    if not desired.is_known:
        return
    seen = set()
    for gpu in gpus:
        product = mig_product(gpu.name or "")
        if product is None or product in seen:
            continue
        seen.add(product)
        minimum = tables.mig_minimum_driver()[product]
        if not desired.at_least(minimum):
            yield refusal(
                "mig-driver-too-old",
                named=named(gpu),
                minimum=minimum,
                desired=desired,
                branch=versions.branch_of(minimum),
            )


def _placement_refusals(settings: Settings, chosen: Sequence[Chosen]) -> Iterator[Refusal]:
    seen = set()
    for each in chosen:
        desired = each.product, each.entry.path if each.entry else None
        if each.product is None or desired in seen or each.match is Match.MAYBE:
            continue
        seen.add(desired)
        if each.entry is None and settings.mig.file is None:
            yield refusal(
                "mig-not-published",
                settings=settings,
                named=named(each.gpu),
                each=each,
                configs=", ".join(published(each.product).configs),
            )
        elif each.entry is not None and each.entry.mig_enabled:
            devices = each.entry.mig_devices or {}
            judged = judge(each.product, devices)
            if judged.verdict is Verdict.NOT_PLACED:
                nearest = "; ".join(text(layout) for layout in nearest_layouts(each.product, devices))
                yield refusal(
                    "mig-no-place", settings=settings, named=named(each.gpu), each=each, judged=judged, nearest=nearest
                )


def mig_cautions(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Caution]:
    """Tell what of a MIG configuration could not be judged, or is odd in it."""
    if settings.mig.config is None:
        if settings.mig.config_from_label:
            yield caution("mig-no-label")
        return
    try:
        chosen = tuple(of_gpus(settings.mig, gpus))
        declaration = settings.mig.declaration() if settings.mig.file else None
    except DeclarationError:
        return
    for each in chosen:
        if each.entry is None and declaration is not None:
            yield caution("mig-no-entry", settings=settings, named=named(each.gpu), each=each, declaration=declaration)
        elif reason := _not_judged(each):
            yield caution("mig-not-judged", named=named(each.gpu), each=each, settings=settings, reason=reason)
    if declaration is not None:
        yield from _declared(settings, declaration, len(gpus))


def _not_judged(chosen: Chosen) -> str | None:
    """Return why nobody can say whether a GPU can hold what is asked of it; None where somebody can."""
    if chosen.product is None:
        if _has_no_mig(chosen.gpu):
            return None
        if chosen.gpu.device_id in tables.mig().without_profiles:
            return "it has MIG, and no table of its profiles was found"
        return "it is in no table of products with MIG"
    if chosen.entry is None:
        return None
    if chosen.match is Match.MAYBE:
        return f"{chosen.entry.path} is for boards of one subsystem id alone, and nothing tells the GPU's"
    judged = judge(chosen.product, chosen.entry.mig_devices or {})
    return judged.reason if judged.verdict is Verdict.UNDECIDED else None


def _declared(settings: Settings, declaration: Declaration, count: int) -> Iterator[Caution]:
    name = settings.mig.config or ""
    configs = {name: declaration.configs[name]}
    for oddity in cautions_of(Declaration(declaration.source, configs, declaration.doubled)):
        yield caution("mig-oddity", declaration=declaration, oddity=oddity)
    for entry in configs[name]:
        beyond = sorted({index for index in entry.devices or () if index >= count})
        if beyond:
            yield caution(
                "mig-beyond", declaration=declaration, entry=entry, beyond=", ".join(map(str, beyond[:8])), count=count
            )
