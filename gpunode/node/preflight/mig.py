"""Can driver and GPUs hold the desired MIG configuration?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode.base import tables, versions
from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.driver.flavour import WantedDriver, named
from gpunode.components.mig.cautions import cautions_of
from gpunode.components.mig.device_filter import Match
from gpunode.components.mig.goal import Verdict, judge, nearest_layouts
from gpunode.components.mig.placement import text
from gpunode.components.mig.target import Chosen
from gpunode.components.mig.target import chosen as of_gpus
from gpunode.node.requirements import mig_product
from gpunode.settings import Settings
from gpunode.settings.mig_parted.declaration import Declaration, Entry, published
from gpunode.settings.mig_parted.document import DeclarationError
from gpunode.system.pci import PciGpu

FILE_WRONG = RefusalMessage(
    "mig-file-wrong",
    "The file of MIG configurations has a mistake.",
    reason="{source}: {mistake}",
    source="mig.file {file}",
    remedy="correct the file",
)


def mig_refusals(settings: Settings, gpus: Sequence[PciGpu], desired: WantedDriver) -> Iterator[Refusal]:
    """Refuse a configuration that divides GPUs without MIG, has no place on one, or for which its driver is too old."""
    if settings.mig.config is None:
        return
    try:
        chosen = tuple(of_gpus(settings.mig, gpus))
    except DeclarationError as error:
        # It was read when the settings were validated, and has changed since.
        yield FILE_WRONG(source=error.source, mistake=error.mistakes[0], file=settings.mig.file)
        return
    yield from _driver_refusals([item.gpu for item in chosen if item.entry and item.entry.mig_enabled], desired)
    yield from _without_mig(settings, chosen)
    yield from _placement_refusals(settings, chosen)


NO_MIG = RefusalMessage(
    "mig-has-none",
    "A GPU of the node has no MIG, and mig.config is to divide it.",
    reason="{named} has no MIG, and mig.config {config!r} is to divide it",
    source="MIG user guide, supported GPUs (gpunode/data/mig.yaml, chips_without)",
    remedy="leave mig.config out for this node; several pods share such a GPU by sharing.strategy",
)


def _without_mig(settings: Settings, chosen: Sequence[Chosen]) -> Iterator[Refusal]:
    """Refuse to divide a GPU without MIG.

    Where another GPU of the same entry has MIG, one that the entry does not name (`devices: all`) is left out.
    """
    lacking = [each for each in chosen if has_no_mig(each.gpu)]
    alone = len(lacking) == len(chosen) and settings.mig.config != "all-disabled"
    seen = set()
    for each in lacking:
        divided = alone and settings.mig.file is None
        if each.entry is not None:
            divided = each.entry.mig_enabled and (each.entry.devices is not None or _lacks_all(each.entry, chosen))
        if divided and each.gpu.device_id not in seen:
            seen.add(each.gpu.device_id)
            yield NO_MIG(named=named(each.gpu), config=settings.mig.config)


def _lacks_all(entry: Entry, chosen: Sequence[Chosen]) -> bool:
    same = (each.gpu for each in chosen if each.entry is not None and each.entry.path == entry.path)
    return all(map(has_no_mig, same))


def has_no_mig(gpu: PciGpu) -> bool:
    """Say whether a GPU's chip is known to have no MIG."""
    known = tables.pci_device(gpu.device_id)
    return known is not None and known.chip.startswith(tables.mig().chips_without)


DRIVER_TOO_OLD = RefusalMessage(
    "mig-driver-too-old",
    "The driver is too old for MIG on a GPU of the node.",
    reason="MIG on {named} needs driver {minimum} or newer, and the driver is {desired}",
    source="MIG user guide, deployment considerations (gpunode/data/minimums.yaml, mig_minimum_driver)",
    remedy="set driver.branch to '{branch}' or newer, or leave mig.config out",
)


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
            branch = versions.branch_of(minimum)
            yield DRIVER_TOO_OLD(named=named(gpu), minimum=minimum, desired=desired, branch=branch)


NOT_PUBLISHED = RefusalMessage(
    "mig-not-published",
    "The MIG configuration is not published for a GPU of the node.",
    reason="mig.config {config!r} is not published for {named} ({product})",
    source="nvidia-mig-parted's published configurations (gpunode/data/mig.yaml, products)",
    remedy="set mig.config to one of {configs}, or name a file by mig.file",
)
NO_PLACE = RefusalMessage(
    "mig-no-place",
    "The MIG layout does not fit on a GPU of the node.",
    reason="mig.config {config!r} has no place on {named} ({product}, GPU {index}): {reason}",
    source="nvidia-smi mig -lgipp of such GPUs (gpunode/data/mig.yaml, geometries)",
    remedy="set a layout that fits, the nearest are: {nearest}",
)


def _placement_refusals(settings: Settings, chosen: Sequence[Chosen]) -> Iterator[Refusal]:
    config, seen = settings.mig.config, set()
    for each in chosen:
        desired = each.product, each.entry.path if each.entry else None
        if each.product is None or desired in seen or each.match is Match.MAYBE:
            continue
        seen.add(desired)
        if each.entry is None and settings.mig.file is None:
            configs = ", ".join(published(each.product).configs)
            yield NOT_PUBLISHED(config=config, named=named(each.gpu), product=each.product, configs=configs)
        elif each.entry is not None and each.entry.mig_enabled:
            devices = each.entry.mig_devices or {}
            judged = judge(each.product, devices)
            if judged.verdict is Verdict.NOT_PLACED:
                nearest = "; ".join(text(layout) for layout in nearest_layouts(each.product, devices))
                gpu = {"named": named(each.gpu), "product": each.product, "index": each.index}
                yield NO_PLACE(**gpu, config=config, reason=judged.reason, nearest=nearest)


NO_LABEL = CautionMessage(
    "mig-no-label",
    "The node is to take its MIG configuration from a label that it does not have.",
    reason="mig.config_from_label is True, and no label nvidia.com/mig.config of this node is known",
    source="kubectl get nodes",
    remedy="label the node with a configuration's name; until then MIG is not changed",
)
NO_ENTRY = CautionMessage(
    "mig-no-entry",
    "The MIG configuration has no entry for a GPU of the node, which is not changed.",
    reason="no entry of mig.config {config!r} is for {named} (GPU {index}), which is not changed",
    source="mig.file {source}",
    remedy="add an entry for the GPU if it is to be changed",
)
NOT_JUDGED = CautionMessage(
    "mig-not-judged",
    "It is not known before the run whether the MIG layout fits on a GPU of the node.",
    reason="it is not known whether mig.config {config!r} fits on {named} (GPU {index}): {reason}",
    source="gpunode/data/mig.yaml",
    remedy="look at what `nvidia-smi mig -lgipp` reports on the node, once MIG is on",
)


def mig_cautions(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Caution]:
    """Warn of what in a MIG configuration could not be judged, or is odd."""
    if settings.mig.config is None:
        if settings.mig.config_from_label:
            yield NO_LABEL()
        return
    try:
        chosen = tuple(of_gpus(settings.mig, gpus))
        declaration = settings.mig.declaration() if settings.mig.file else None
    except DeclarationError:
        return
    for each in chosen:
        gpu = {"config": settings.mig.config, "named": named(each.gpu), "index": each.index}
        if each.entry is None and declaration is not None:
            yield NO_ENTRY(**gpu, source=declaration.source)
        elif reason := _not_judged(each):
            yield NOT_JUDGED(**gpu, reason=reason)
    if declaration is not None:
        yield from _declared(settings, declaration, len(gpus))


def _not_judged(chosen: Chosen) -> str | None:
    """Return why it is not known whether a GPU can hold its layout; None where it is known."""
    if chosen.product is None:
        if has_no_mig(chosen.gpu):
            return None
        if chosen.gpu.device_id in tables.mig().without_profiles:
            return "it has MIG, and no table of its profiles was found"
        return "it is in no table of products with MIG"
    if chosen.entry is None:
        return None
    if chosen.match is Match.MAYBE:
        return f"{chosen.entry.path} is only for boards of one subsystem id, and that of the GPU is not known"
    judged = judge(chosen.product, chosen.entry.mig_devices or {})
    return judged.reason if judged.verdict is Verdict.UNDECIDED else None


ODDITY = CautionMessage(
    "mig-oddity",
    "The file of MIG configurations has something odd in it, which does no harm.",
    reason="{source}: {oddity}",
    source="mig.file {source}",
    remedy="correct it, or leave it out",
)
BEYOND = CautionMessage(
    "mig-beyond",
    "The MIG configuration names a GPU that the node does not have.",
    reason="{source}: {path}.devices names GPU {beyond}, and the node has {count}: nothing is done for it",
    source="mig.file {source}",
    remedy="take it out, if the node is to have no such GPU",
)


def _declared(settings: Settings, declaration: Declaration, count: int) -> Iterator[Caution]:
    name = settings.mig.config or ""
    configs = {name: declaration.configs[name]}
    for oddity in cautions_of(Declaration(declaration.source, configs)):
        yield ODDITY(source=declaration.source, oddity=oddity)
    for entry in configs[name]:
        beyond = sorted({index for index in entry.devices or () if index >= count})
        if beyond:
            names = ", ".join(map(str, beyond[:8]))
            yield BEYOND(source=declaration.source, path=entry.path, beyond=names, count=count)
