"""What nvidia-mig-parted accepts in silence though something else happens than was meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from gpunode.base import tables
from gpunode.base.messages import command_caution
from gpunode.components.mig.device_filter import NVIDIA, Match, PciId, matches, parse_pci_id
from gpunode.components.mig.goal import Verdict, judge
from gpunode.settings.mig_parted.declaration import Declaration, Entry
from gpunode.settings.mig_parted.document import Mistake, Profile, parse_profile, shown

_COMPARED = 200
_FILTER = command_caution(
    "mig.device-filter", "A device filter of a MIG configuration matches no GPU with MIG that gpunode knows.",
    "nvidia-mig-parted accepts it silently. The entry is then for no GPU, or for one whose profiles gpunode does not "
    "know.",
    remedy="write the PCI id of the product as 0x233010DE, from `lspci -n`: device, then vendor",
)  # fmt: skip
_DEVICES = command_caution(
    "mig.devices", "An entry's list of GPUs is empty, or has an index twice or an index that no GPU has.",
    "nvidia-mig-parted accepts it silently. Indices are those of nvidia-smi, from 0.",
    remedy="list each index once, or write `all`",
)  # fmt: skip
_TWICE = command_caution(
    "mig.profile-twice", "An entry has a MIG profile twice, in two spellings.",
    "The two counts are added.",
    remedy="write the profile once, with the sum",
)  # fmt: skip
_NOWHERE = command_caution(
    "mig.layout-nowhere", "No product that a MIG configuration's entry is for can hold its layout.",
    "Where a count does not fit, nvidia-mig-parted fails on the node and leaves the GPU without instances; where the "
    "GPU lacks a profile, it does the same and reports success. The message names a product and "
    "what does not fit on it.",
    remedy="change the layout, or name the products in a device filter; `gpunode mig check` with --gpu lists the "
    "nearest layouts that fit",
)  # fmt: skip
_OVERLAP = command_caution(
    "mig.entries-overlap", "Two entries of a MIG configuration are for the same GPU.",
    "The later entry counts; the earlier one does nothing on that GPU. nvidia-mig-parted fails where one of the two "
    "turns MIG on and the other turns it off.",
    remedy="separate the entries with `devices` or a device filter",
)  # fmt: skip


def cautions_of(declaration: Declaration) -> tuple[Mistake, ...]:
    """Return what is odd in a declaration, by the order in which it stands there."""
    found: list[Mistake] = []
    for entries in declaration.configs.values():
        for entry in entries:
            found += _filters(entry)
            found += _indices(entry)
            found += _profiles(entry)
            found += _counts(entry)
        found += _overlaps(entries)
    return tuple(found)


def _filters(entry: Entry) -> Iterator[Mistake]:
    known = {device for product in tables.mig().products.values() for device in product.device_ids}
    for text in entry.device_filter:
        desired, path = parse_pci_id(text), f"{entry.path}.device-filter"
        if desired is None:
            yield Mistake(path, shown(text), "is no PCI id such as '0x233010DE': it matches no GPU", code=_FILTER)
        elif desired.vendor != NVIDIA:
            said = "is not a GPU of NVIDIA's, whose ids end in 10DE: it matches no GPU"
            yield Mistake(path, shown(text), said, code=_FILTER)
        elif desired.device_id not in known:
            yield Mistake(path, shown(text), "is of no product with MIG that gpunode knows", code=_FILTER)


def _indices(entry: Entry) -> Iterator[Mistake]:
    path = f"{entry.path}.devices"
    if entry.devices == ():
        yield Mistake(path, "[]", "is empty: the entry is for no GPU", code=_DEVICES)
    for index, times in Counter(entry.devices or ()).items():
        if index < 0:
            yield Mistake(path, str(index), "is the index of no GPU: indices count from 0", code=_DEVICES)
        if times > 1:
            yield Mistake(path, str(index), f"stands {times} times", code=_DEVICES)


def _profiles(entry: Entry) -> Iterator[Mistake]:
    seen: dict[Profile, str] = {}
    for name in entry.mig_devices or {}:
        first = seen.setdefault(parse_profile(name), name)
        if first != name:
            path = f"{entry.path}.mig-devices"
            said = f"is the same profile as {shown(first)}: the two counts are added"
            yield Mistake(path, shown(name), said, code=_TWICE)


def _counts(entry: Entry) -> Iterator[Mistake]:
    if not entry.mig_enabled or not entry.mig_devices:
        return
    products = tuple(products_of(entry))
    judged = {product: judge(product, entry.mig_devices) for product in products}
    if not products or any(each.verdict is not Verdict.NOT_PLACED for each in judged.values()):
        return
    every, path = tables.mig().products, f"{entry.path}.mig-devices"
    desired = {name: parse_profile(name).gpu_instance for name, count in entry.mig_devices.items() if count}
    profiles = {product: set(map(parse_profile, every[product].profiles)) for product in products}
    for name, instance in desired.items():
        if not any(instance in each for each in profiles.values()):
            which = "no product" if len(products) == len(every) else f"none of {', '.join(products)}"
            yield Mistake(path, shown(name), f"{which} that gpunode knows has this profile", code=_NOWHERE)
            return
    having = [product for product in products if profiles[product].issuperset(desired.values())]
    why = f" ({having[0]}: {judged[having[0]].reason})" if having else ": none has all of these profiles"
    yield Mistake(path, None, f"no product that it is for can hold this layout{why}", code=_NOWHERE)


def products_of(entry: Entry) -> Iterator[str]:
    """Yield the products that an entry's filter lets through, with any of their device ids."""
    for name, product in tables.mig().products.items():
        ids = (PciId(int(device, 16), NVIDIA) for device in product.device_ids)
        if any(matches(entry.device_filter, gpu) is not Match.NO for gpu in ids):
            yield name


def _overlaps(entries: Sequence[Entry]) -> Iterator[Mistake]:
    # Every entry is compared with every other: of a list longer than any node has GPUs, the beginning.
    for first, second in combinations(entries[:_COMPARED], 2):
        shared = _shared(first.devices, second.devices)
        if shared is not None and _same_gpus(first.device_filter, second.device_filter):
            message = f"is for {shared} too, which {first.path} is for: the later entry counts"
            if first.mig_enabled != second.mig_enabled:
                message += "; nvidia-mig-parted fails, because one turns MIG on and the other turns it off"
            yield Mistake(second.path, None, message, code=_OVERLAP)


def _shared(first: tuple[int, ...] | None, second: tuple[int, ...] | None) -> str | None:
    """Return the indices that two entries share, in words; None if there are none."""
    if first is None and second is None:
        return "GPUs"
    chosen = second if first is None else first if second is None else tuple(set(first) & set(second))
    real = sorted({index for index in chosen or () if index >= 0})
    return f"GPU {', '.join(map(str, real[:8]))}" if real else None


def _same_gpus(first: tuple[str, ...], second: tuple[str, ...]) -> bool:
    if not first or not second:
        return True
    ids = [[each for each in map(parse_pci_id, filters) if each is not None] for filters in (first, second)]
    return any(
        (a.device, a.vendor) == (b.device, b.vendor)
        and (a.subsystem == b.subsystem or None in (a.subsystem, b.subsystem))
        for a in ids[0]
        for b in ids[1]
    )
