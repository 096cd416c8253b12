"""Settings of the Multi-Process Service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from gpunode.settings.component import Component, matching
from gpunode.settings.driver import root_elsewhere

# What cannot be read back cannot be proven: the daemon prints one decimal, and of 1536M that it is 1G.
Percentage = Annotated[
    str, matching(r"100(\.0)?|[1-9]\d?(\.\d)?|0\.[1-9]", "a percentage from '0.1' to '100', with at most one decimal")
]
MemoryLimit = Annotated[
    str,
    matching(
        r"[1-9]\d{0,3}G|[1-9]\d{0,2}M|10[01]\dM|102[0-3]M",
        "whole gigabytes such as '8G', or less than one as megabytes, '512M': the daemon reads others back rounded",
    ),
]
# It is looked up as it is written: '01' would be nobody's.
_Device = Annotated[str, matching(r"0|[1-9]\d?", "the index of a GPU such as '0' or '10', without a leading zero")]
# The most that any GPU takes; which one a node has, preflight knows.
MOST_CLIENTS = 48


class MpsSettings(Component):
    """The Multi-Process Service (MPS) on the host: a control daemon that systemd keeps running, with its settings read
    back (docs/mps.md). Under Kubernetes the device plugin runs MPS daemons of its own: leave this out there."""

    enabled: bool = False
    """true: run the MPS control daemon; false: what gpunode set up of it goes."""
    daemons: Literal["node", "gpu"] = "node"
    """One daemon for all GPUs of the `node` (nvidia-mps.service), or one for each `gpu` (nvidia-mps@INDEX.service),
    which restarts without the others."""
    active_thread_percentage: Percentage = "100"
    """Share of a GPU's threads that a client may use, in percent. A change needs no restart."""
    memory_limit: MemoryLimit | None = None
    """Device memory that a client may pin, of every GPU: `8G`, `512M`. Not given: no limit."""
    memory_limits: dict[_Device, MemoryLimit] = Field(default_factory=dict, max_length=64)
    """The same for single GPUs, by index: `{'0': '8G'}`; it counts before `memory_limit`."""
    clients: int | None = Field(None, ge=1)
    """How many clients a GPU is to serve: preflight refuses more than it can (48; 16 before Volta), and more than its
    memory has room for at `memory_limit` each."""
    compute_mode: Literal["exclusive-process", "default"] = "exclusive-process"
    """The GPUs' compute mode while the daemon runs. With `exclusive-process`, which NVIDIA recommends, no program uses
    a GPU beside the daemon's clients; it is `default` again when the daemon stops."""

    environment: bool = False
    """Set `CUDA_MPS_PIPE_DIRECTORY`, without which a program passes the daemon by, for login shells (/etc/profile.d)
    and users' services (/etc/environment.d). With `daemons: node` alone."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield more clients than any GPU serves, and one variable for several daemons."""
        if self.clients is not None and self.clients > MOST_CLIENTS:
            yield "clients", f"is more than the {MOST_CLIENTS} that MPS serves on any GPU"
        if self.environment and self.daemons == "gpu":
            message = "sets one directory, and with mps.daemons 'gpu' each GPU has its own, /run/nvidia-mps/INDEX"
            yield "environment", f"{message}; leave it out, or ask for the daemon of the 'node'"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield daemons that gpunode would run by a driver at / alone."""
        root = root_elsewhere(others)
        if self.enabled and root is not None:
            message = f"runs its daemons by a driver at '/' alone, and driver.root is {root!r}; leave it out"
            yield "enabled", f"{message}, or share GPUs by the device plugin (sharing.strategy 'mps')"

    def limit_of(self, index: int) -> str | None:
        """Return the memory limit of a client on the GPU of that index; None without one."""
        return self.memory_limits.get(str(index), self.memory_limit)
