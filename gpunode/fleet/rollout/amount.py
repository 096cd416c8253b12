"""A number of nodes, or a percentage of those of the inventory: `2`, `10%`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

_WRITTEN = re.compile(r"([0-9]{1,9})(%?)", re.ASCII)


class AmountError(CodedError, ValueError):
    """Say what is no amount, and what is allowed."""

    code = command_error(
        "rollout.amount", "A number of nodes or a percentage cannot be used.",
        "--max-unavailable and --failure-budget take a number of nodes, or a percentage up to 100%.",
        remedy="write a number such as 2, or a percentage such as 10%", exit="64",
    )  # fmt: skip


@dataclass(frozen=True)
class Amount:
    """Hold a number of nodes, or of percent where `percent` is set."""

    value: int
    percent: bool = False

    def of(self, nodes: int) -> int:
        """Return how many of `nodes` that is; a percentage is rounded down."""
        return nodes * self.value // 100 if self.percent else self.value


def amount(text: str, least: int = 0) -> Amount:
    """Return the amount written as `text`; raise AmountError where it is none, or below `least`."""
    match = _WRITTEN.fullmatch(text)
    found = Amount(int(match[1]), bool(match[2])) if match else None
    if found is None or found.value < least or (found.percent and found.value > 100):
        raise AmountError(f"{text!r} is neither a number of nodes from {least} on nor a percentage up to 100%")
    return found
