"""Kernel features on a node."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.probe_output import repeated
from gpunode.base.reading import Reading


@dataclass(frozen=True)
class KernelFeatures(Reading):
    """Hold the names of modules whose effect is there: overlay, br_netfilter, ib_umad."""

    present: tuple[str, ...]


def parse_kernel_features(lines: list[str]) -> KernelFeatures:
    """Parse `feature=NAME` lines."""
    return KernelFeatures(tuple(repeated(lines, "feature")))
