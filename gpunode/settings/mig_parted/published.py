"""The configurations that NVIDIA publishes with mig-parted, for each product: all-disabled, all-1g.10gb, all-balanced.

They are a rule rather than a list: every profile as often as it fits, and one mixture. A name that stands for other
profiles on another product (all-1g.10gb: seven on an H100, four with double memory on an A100 40GB) is by that
product's table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from gpunode.base import tables
from gpunode.settings.mig_parted.declaration import Declaration, Entry
from gpunode.settings.mig_parted.profile import parse_profile

# Compute slices of the whole GPU -> slices of an instance -> how many.
_BALANCED = {7: {3: 1, 2: 1, 1: 2}, 4: {2: 1, 1: 2}}


@cache
def published(product: str) -> Declaration:
    """Return a product's published configurations; KeyError: no such product."""
    profiles = tables.mig().products[product].profiles
    layouts: dict[str, Mapping[str, int] | None] = {"all-disabled": None, "all-enabled": {}}
    layouts |= {f"all-{profile.replace('+', '.')}": {profile: most} for profile, most in profiles.items()}
    layouts["all-balanced"] = balanced(product)
    source = f"published configurations of {product}"
    return Declaration(source, MappingProxyType({name: _entries(name, layout) for name, layout in layouts.items()}))


def balanced(product: str) -> dict[str, int]:
    """Return the one mixture that is published: of plain profiles, those with least memory."""
    plain: dict[int, str] = {}
    for profile in sorted(map(parse_profile, tables.mig().products[product].profiles), key=lambda each: each.gigabytes):
        if not profile.attributes and not profile.without:
            plain.setdefault(profile.slices, str(profile))
    return {plain[slices]: count for slices, count in _BALANCED[max(plain)].items()}


def known_names() -> tuple[str, ...]:
    """Return every name that is published for any product."""
    return tuple(dict.fromkeys(name for product in tables.mig().products for name in published(product).configs))


def _entries(name: str, layout: Mapping[str, int] | None) -> tuple[Entry, ...]:
    return (Entry(f"{name}[0]", (), None, layout is not None, layout),)
