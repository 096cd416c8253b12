"""Settings of how pods share a node's GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from gpunode.settings.component import Component, matching
from gpunode.settings.mps import MOST_CLIENTS

WHOLE_GPU = "nvidia.com/gpu"
_Resource = Annotated[
    str,
    AfterValidator(
        matching(
            r"nvidia\.com/(gpu|mig-\d{1,2}g\.\d{1,3}gb([.-][a-z.-]+)?)", "'nvidia.com/gpu' or 'nvidia.com/mig-1g.10gb'"
        )
    ),
]
_Entry = Annotated[
    str,
    AfterValidator(matching(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "a name that a label's value may hold")),
]


class SharingSettings(Component):
    """Say how the device plugin lets pods share a node's GPUs."""

    summary: ClassVar[str] = (
        "How pods share the GPUs of a node, where `kubernetes.enabled`. Each node has its own; the device plugin's "
        "configurations and the nodes' labels are made from it (docs/device-plugin.md)."
    )

    strategy: Literal["none", "time-slicing", "mps"] = Field(
        "none",
        description=(
            "`none`: a GPU (or MIG device) is one pod's; `time-slicing`: pods take turns, with nothing between them; "
            "`mps`: pods run side by side, each with its part of memory and threads, on whole GPUs."
        ),
    )
    replicas: int | None = Field(
        None, ge=2, le=1000, description=f"How many pods share each `{WHOLE_GPU}`; with MPS {MOST_CLIENTS} at most."
    )
    resources: dict[_Resource, int] = Field(
        default_factory=dict,
        max_length=32,
        description=(
            "The same by resource, in the place of `replicas`: `{'nvidia.com/mig-1g.10gb': 2}` with "
            "`mig_strategy: mixed`."
        ),
    )
    rename: bool = Field(False, description=f"Offer shared GPUs as `{WHOLE_GPU}.shared` (renameByDefault).")
    fail_requests_greater_than_one: bool | None = Field(
        None,
        description=(
            "Refuse a container that asks for more than one of a shared resource, since two are no more than one. Not "
            "given: the plugin's default (time slicing false, MPS always true)."
        ),
    )
    mig_strategy: Literal["none", "single", "mixed"] = Field(
        "none",
        description=(
            f"How MIG devices are offered: `single` as `{WHOLE_GPU}` (all of one profile), `mixed` each by its profile "
            "(nvidia.com/mig-1g.10gb), `none` not at all."
        ),
    )
    config: _Entry | None = Field(
        None,
        description="With `device_plugin.config_name`: the entry of that ConfigMap that counts on this node.",
    )

    @property
    def replicated(self) -> dict[str, int]:
        """Return resource -> replicas."""
        return dict(self.resources) or ({} if self.replicas is None else {WHOLE_GPU: self.replicas})

    def contradictions(self) -> list[tuple[str, str]]:
        """Return what cannot be asked for together."""
        return list(self._contradictions())

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        if self.strategy == "none":
            for name in ("replicas", "resources", "rename", "fail_requests_greater_than_one"):
                if getattr(self, name) not in (None, False, {}):
                    yield (
                        name,
                        "says nothing with sharing.strategy 'none'; set 'time-slicing' or 'mps', or leave it out",
                    )
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
            message = f"names {sliced[0]}, which there is with sharing.mig_strategy 'mixed' alone"
            yield "resources", message
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
