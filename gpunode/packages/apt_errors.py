"""What apt, dpkg and apt-mark say when they fail, as cause and remedy. Pure: lines of text in, explanations out."""

from __future__ import annotations

from collections.abc import Iterable

from gpunode.base import explanations
from gpunode.base.explanations import Explanation


def explained(lines: Iterable[str]) -> tuple[Explanation, ...]:
    """Return what the lines tell, in their order, each kind of cause once and three at most; none where they are new.

    lines: what apt or dpkg printed in the C locale
    """
    found = explanations.explained("apt", lines)
    # A program that was killed says nothing of why, and whoever depends on what failed says only that.
    consequences = {"killed", "script"} & set(found)
    return tuple(text for kind, text in found.items() if kind not in consequences or len(found) == len(consequences))
