"""What zypper means by its exit codes, and what it says when it fails, as cause and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable

from gpunode.base import explanations
from gpunode.base.explanations import LONGEST_LINE, Exit, Explanation, zypper_exits

# The work was done: 100 to 103 tell of what remains, and of 106 and 107 the proof that follows says whether it matters.
GOOD = frozenset({0, 100, 101, 102, 103, 106, 107})
_UNNAMED = Exit("a code that zypper(8) does not name")
# What gpunode's own scripts say of a repository of zypper's.
_OTHER_KEY = "gpunode: signed by another key"
_EXIT = re.compile(r"gpunode: zypper exits (?P<code>\d{1,3})\b")


def meaning(code: int) -> str:
    """Return what an exit code of zypper's says, for people."""
    if code > 128:
        return f"it was killed (signal {code - 128})"
    return f"it exits {code} ({zypper_exits().get(code, _UNNAMED).means})"


def explained(lines: Iterable[str]) -> tuple[Explanation, ...]:
    """Return what the lines tell, in their order, each cause once and three at most; none where zypper did not fail.

    Where they tell nothing that is known, the exit code does. dnf and rpm have many of the same words.
    """
    lines = [line[:LONGEST_LINE] for line in lines]
    codes = [int(match["code"]) for line in lines if (match := _EXIT.search(line))]
    if not codes and not any(_OTHER_KEY in line for line in lines):
        return ()
    if found := explanations.explained("zypper", lines):
        return tuple(found.values())
    remedy = zypper_exits().get(codes[-1], _UNNAMED).remedy
    remedy = remedy or "see zypper's own words above, and /var/log/zypper.log on the node"
    return (Explanation(f"zypper failed: {meaning(codes[-1])}", remedy),)
