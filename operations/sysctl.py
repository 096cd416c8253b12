"""Kernel parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.facts.system import KubernetesSysctls
from gpunode.operations.failure import node_operation, require


@node_operation
def set_now(values: Mapping[str, str]) -> Iterator[Any]:
    """Set the parameters that differ; persist them with a file in /etc/sysctl.d beside this.

    + values: among those of gpunode.system.sysctl
    """
    present = dict(require(host.get_fact(KubernetesSysctls), "the kernel's parameters").values)
    wrong = {name: value for name, value in values.items() if present.get(name) != value}
    if not wrong:
        host.noop(f"set: {', '.join(values)}")
        return
    yield StringCommand("sysctl", "-w", *(QuoteString(f"{name}={value}") for name, value in wrong.items()))
