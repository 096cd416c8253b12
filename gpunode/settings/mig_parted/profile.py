"""Names of MIG profiles: `3g.40gb`, `1c.3g.40gb`, `1g.10gb+me`, `1g.24gb-me`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpunode.settings.mig_parted.document import shown

# Numbers as Go's strconv.Atoi takes them, but for signs, which the splitting at + and - leaves none of.
_FIELDS = re.compile(r"(?:(?P<compute>[0-9]+)c\.)?(?P<slices>[0-9]+)g\.(?P<gigabytes>[0-9]+)gb", re.ASCII)
_ATTRIBUTE = re.compile(r"[A-Za-z](?:[A-Za-z0-9.]*[A-Za-z0-9])?", re.ASCII)
_LARGEST = 2**63 - 1
WANTED = "Ng.Mgb, Cc.Ng.Mgb, either with +attribute or -attribute after it, such as '3g.40gb' or '1g.10gb+me'"


class ProfileError(ValueError):
    """Say why a text is no name of a profile."""


@dataclass(frozen=True)
class Profile:
    """Hold a profile's name in its parts.

    `compute` is the size of the compute instance, `slices` that of the GPU instance (equal where only one is written),
    `gigabytes` its memory; `attributes` it has (+me), `without` it lacks (-me).
    """

    compute: int
    slices: int
    gigabytes: int
    attributes: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    @property
    def gpu_instance(self) -> Profile:
        """Return the profile of the GPU instance that holds it."""
        return replace(self, compute=self.slices)

    def __str__(self) -> str:
        """Return the name in its shortest form."""
        compute = "" if self.compute == self.slices else f"{self.compute}c."
        has, lacks = ",".join(sorted(self.attributes)), ",".join(sorted(self.without))
        suffix = f"+{has}" if has else f"-{lacks}" if lacks else ""
        return f"{compute}{self.slices}g.{self.gigabytes}gb{suffix}"


def parse_profile(text: str) -> Profile:
    """Return the profile that `text` names; raise ProfileError. The format is nvidia-mig-parted's (go-nvlib)."""
    base, plus, has = text.partition("+")
    if plus and "-" in text:
        raise ProfileError("has both +attributes and -attributes")
    minus, lacks = "", ""
    if not plus:
        base, minus, lacks = text.partition("-")
    found = _FIELDS.fullmatch(base)
    if found is None:
        raise ProfileError(f"must be {WANTED}")
    numbers = [int(found[name]) for name in ("slices", "gigabytes")]
    numbers.append(int(found["compute"] or found["slices"]))
    if max(numbers) > _LARGEST:
        raise ProfileError("has a number that is too large")
    slices, gigabytes, compute = numbers
    return Profile(
        compute,
        slices,
        gigabytes,
        _attributes(has) if plus else frozenset(),
        _attributes(lacks) if minus else frozenset(),
    )


def _attributes(text: str) -> frozenset[str]:
    every = text.split(",")
    for attribute in every:
        if _ATTRIBUTE.fullmatch(attribute) is None:
            raise ProfileError(
                f"{shown(attribute)} is no attribute; it must be letters, digits and dots, a letter first"
            )
    if len(set(every)) < len(every):
        raise ProfileError("names an attribute twice")
    return frozenset(every)
