"""From the profiles of a declaration to the GPU instances of a product, and whether those have a place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpunode.base import tables
from gpunode.components.mig.change import Instance, Wanted, change, in_order, sizes_in
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.placement import Impossible, counts, layout_of, nearest, place, text
from gpunode.settings.mig_parted.declaration import balanced, published
from gpunode.settings.mig_parted.document import Profile, parse_profile


class Verdict(StrEnum):
    """Name what became of a layout; undecided: nobody has verified where the product's instances may stand."""

    PLACED = "placed"
    NOT_PLACED = "not placed"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Judged:
    """Hold the verdict on a layout.

    `instances` are its GPU instances with their places, in the order in which to create them; None where the table has
    no places, though the layout fits. `reason` says why it does not.
    """

    verdict: Verdict
    instances: tuple[Instance, ...] | None = ()
    reason: str | None = None


def judge(product: str, mig_devices: Mapping[str, int]) -> Judged:
    """Return where the instances that `mig_devices` (profile -> count, well-formed) asks for go on a product."""
    desired = wanted_instances(tables.mig().products[product].profiles, mig_devices)
    if isinstance(desired, Impossible):
        return Judged(Verdict.NOT_PLACED, (), desired.reason)
    if not desired:
        return Judged(Verdict.PLACED)
    geometry = product_geometry(product)
    if geometry is None:
        return _by_count(product, Counter(each.profile for each in desired))
    actual = change(geometry, (), desired)
    if isinstance(actual, Impossible):
        return Judged(Verdict.NOT_PLACED, (), actual.reason)
    return Judged(Verdict.PLACED, actual.created)


def wanted_instances(profiles: Mapping[str, int], mig_devices: Mapping[str, int]) -> tuple[Wanted, ...] | Impossible:
    """Return the GPU instances that the declared devices take, or why a GPU with these profiles has no such thing.

    `profiles` is profile -> how many of it fit. Devices with fewer compute slices than their GPU instance (1c.3g.40gb)
    share one as far as they fit.
    """
    theirs = {parse_profile(name): name for name in profiles}
    sizes: dict[str, list[int]] = {}
    for name, count in mig_devices.items():
        if not count:
            continue
        profile = parse_profile(name)
        instance = theirs.get(profile.gpu_instance)
        if instance is None:
            listed = ", ".join(profiles)
            return Impossible(f"the GPU has no profile {profile.gpu_instance}; it has {listed}")
        allowed = sizes_in(profile.slices)
        if profile.compute not in allowed:
            listed = ", ".join(f"{size}c" for size in allowed)
            return Impossible(f"{profile}: a {instance} holds compute instances of {listed}")
        if count > profile.slices * profiles[instance]:
            most = profiles[instance]
            return Impossible(f"{text({name: count})}: of {instance} the GPU holds {most} at most")
        sizes.setdefault(instance, []).extend([profile.compute] * count)
    return tuple(
        Wanted(instance, packed)
        for instance, every in sizes.items()
        for packed in _packed(every, parse_profile(instance).slices)
    )


def _packed(sizes: Iterable[int], slices: int) -> list[tuple[int, ...]]:
    """Put compute instances into as few GPU instances as will do, large ones first."""
    found: list[tuple[int, ...]] = []
    for size in sorted(sizes, reverse=True):
        for number, actual in enumerate(found):
            if in_order(slices, (*actual, size)) is not None:
                found[number] = (*actual, size)
                break
        else:
            found.append((size,))
    return found


def _by_count(product: str, layout: Counter[str]) -> Judged:
    """Judge without places: what is part of a published layout fits, what has too many slices does not."""
    row = tables.mig().products[product]
    known = ({name: most} for name, most in row.profiles.items())
    if any(layout <= Counter(each) for each in (*known, balanced(product))):
        return Judged(Verdict.PLACED, None)
    whole = max(parse_profile(name).slices for name in row.profiles)
    needed = sum(parse_profile(name).slices * count for name, count in layout.items())
    over = [name for name, count in layout.items() if count > row.profiles[name]]
    reason = f"where instances of {product} may stand is not verified, and this mixture is not published"
    if over:
        reason = f"{text(layout)}: of {over[0]} the GPU holds {row.profiles[over[0]]} at most"
    elif needed > whole:
        reason = f"{text(layout)}: they take {needed} compute slices, and the GPU has {whole}"
    verdict = Verdict.NOT_PLACED if over or needed > whole else Verdict.UNDECIDED
    return Judged(verdict, (), reason)


def nearest_layouts(product: str, mig_devices: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
    """Return the layouts that fit and are nearest to what is asked for, in profiles that the product has."""
    theirs = [parse_profile(name) for name in tables.mig().products[product].profiles]
    desired: dict[str, list[int]] = {}
    for name, count in mig_devices.items():
        profile = parse_profile(name)
        like = [each for each in theirs if _alike(each, profile)]
        if like and count:
            closest = min(like, key=lambda each: (abs(each.gigabytes - profile.gigabytes), each.gigabytes))
            # More than a GPU has slices make no layout nearer.
            desired.setdefault(str(closest), []).extend([min(profile.compute, closest.slices)] * min(count, 16))
    layout = {name: len(_packed(sizes, parse_profile(name).slices)) for name, sizes in desired.items()}
    geometry = product_geometry(product)
    if geometry is None:
        every = (entry.mig_devices for entries in published(product).configs.values() for entry in entries)
        known = [each for each in every if each]
        return tuple(sorted(known, key=lambda each: _distance(each, layout))[:3])
    if layout and not isinstance(place(geometry, layout), Impossible):
        return (layout_of(geometry, counts(geometry, layout)),)
    return tuple(layout_of(geometry, each) for each in nearest(geometry, counts(geometry, layout)))


def _alike(theirs: Profile, profile: Profile) -> bool:
    same = theirs.slices == profile.slices
    return same and (theirs.attributes, theirs.without) == (profile.attributes, profile.without)


def _distance(layout: Mapping[str, int], other: Mapping[str, int]) -> int:
    return sum(abs(layout.get(name, 0) - other.get(name, 0)) for name in {*layout, *other})
