"""Kernel modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.facts.system import KernelFeatures
from gpunode.operations.failure import node_operation, require


@node_operation
def loaded(modules: Sequence[str]) -> Iterator[Any]:
    """Load the modules whose effect is missing; persist them with a file in /etc/modules-load.d beside this.

    + modules: among overlay, br_netfilter and ib_umad
    """
    present = require(host.get_fact(KernelFeatures), "the kernel's features")
    missing = [module for module in modules if module not in present.present]
    if not missing:
        host.noop(f"loaded: {', '.join(modules)}")
        return
    yield StringCommand("modprobe", "-a", *(QuoteString(module) for module in missing))
