"""Settings of how GPUs are shared: by pods, and by the Multi-Process Service of the host."""

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


WHOLE_GPU = "nvidia.com/gpu"
_Resource = Annotated[
    str,
    matching(
        r"nvidia\.com/(gpu|mig-\d{1,2}g\.\d{1,3}gb([.-][a-z.-]+)?)", "'nvidia.com/gpu' or 'nvidia.com/mig-1g.10gb'"
    ),
]
_Entry = Annotated[
    str, matching(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "a name that a label's value may hold")
]


class SharingSettings(Component):
    """How pods share the GPUs of a node, where `kubernetes.enabled`. Each node has its own; the device plugin's
    configurations and the nodes' labels are made from it (docs/device-plugin.md)."""

    strategy: Literal["none", "time-slicing", "mps"] = "none"
    """`none`: a GPU (or MIG device) is one pod's; `time-slicing`: pods take turns, with nothing between them; `mps`:
    pods run side by side, each with its part of memory and threads, on whole GPUs."""
    replicas: int | None = Field(None, ge=2, le=1000)
    """How many pods share each `nvidia.com/gpu`; required with a `strategy`, unless `resources` are given: 2 or more,
    for the plugin does not start with 1, and with MPS 48 at most."""
    resources: dict[_Resource, int] = Field(default_factory=dict, max_length=32)
    """The same by resource, in the place of `replicas`: `{'nvidia.com/mig-1g.10gb': 2}` with `mig_strategy: mixed`."""
    rename: bool = False
    """Offer shared GPUs as `nvidia.com/gpu.shared` (renameByDefault)."""
    fail_requests_greater_than_one: bool | None = None
    """Refuse a container that asks for more than one of a shared resource, since two are no more than one. Not given:
    the plugin's default (time slicing false, MPS true; before plugin 0.20 MPS always refuses)."""
    mig_strategy: Literal["none", "single", "mixed"] = "none"
    """How MIG devices are offered: `single` as `nvidia.com/gpu` (all of one profile), `mixed` each by its profile
    (nvidia.com/mig-1g.10gb), `none` not at all."""
    config: _Entry | None = None
    """With `device_plugin.config_name`: the entry of that ConfigMap that counts on this node."""

    @property
    def replicated(self) -> dict[str, int]:
        """Return resource -> replicas."""
        return dict(self.resources) or ({} if self.replicas is None else {WHOLE_GPU: self.replicas})

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be asked for together."""
        if self.strategy == "none":
            for name in ("replicas", "resources", "rename", "fail_requests_greater_than_one"):
                if getattr(self, name) not in (None, False, {}):
                    message = "says nothing with sharing.strategy 'none'; set 'time-slicing' or 'mps', or leave it out"
                    yield name, message
            return
        if not self.replicated:
            yield "replicas", f"is missing: sharing.strategy {self.strategy!r} needs it (or resources)"
        if self.replicas is not None and self.resources:
            yield "resources", "stands in the place of replicas; leave one of the two out"
        few = [f"{name}: {count}" for name, count in self.resources.items() if count < 2]
        if few:
            yield "resources", f"must have 2 replicas or more, which the plugin insists on ({', '.join(few)})"
        if self.strategy == "mps":
            yield from self._mps()
        sliced = [name for name in self.resources if name != WHOLE_GPU]
        if sliced and self.strategy == "time-slicing" and self.mig_strategy != "mixed":
            yield "resources", f"names {sliced[0]}, which there is with sharing.mig_strategy 'mixed' alone"
        if self.mig_strategy == "mixed" and self.strategy == "time-slicing" and not self.resources:
            message = (
                f"is of {WHOLE_GPU}, and with sharing.mig_strategy 'mixed' MIG devices have names of their own; name "
                "them by resources"
            )
            yield "replicas", message

    def _mps(self) -> Iterator[tuple[str, str]]:
        if any(count > MOST_CLIENTS for count in self.replicated.values()):
            yield "replicas" if self.replicas else "resources", f"is more than the {MOST_CLIENTS} that MPS serves"
        if any(name != WHOLE_GPU for name in self.resources):
            yield "resources", f"with sharing.strategy 'mps' can name {WHOLE_GPU} alone: MPS shares whole GPUs"
        if self.mig_strategy != "none":
            yield "mig_strategy", "excludes sharing.strategy 'mps': the plugin shares whole GPUs by MPS, no MIG devices"
