"""Settings of how pods share a node's GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from gpunode.settings.component import Component, matching
from gpunode.settings.mps import MOST_CLIENTS

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
    the plugin's default (time slicing false, MPS always true)."""
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
        if self.fail_requests_greater_than_one is False:
            message = "cannot be False with sharing.strategy 'mps': the plugin always refuses such requests there"
            yield "fail_requests_greater_than_one", message
