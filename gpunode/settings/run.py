"""Settings of a run: how much it may disturb a node that has workloads, and what its verdict looks at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from gpunode.settings.component import Component, matching

ImageName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9.-]+(:\d{1,5})?(/[A-Za-z0-9._~+-]+)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})",
        "an image with tag or digest, such as 'registry/cuda-sample:vectoradd-cuda12.5.0'",
    ),
]

SiteName = Annotated[str, matching(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", "a name in small letters, digits and -")]


class VerifySettings(Component):
    """The verdict at the end of a run."""

    smoke: bool = False
    """Start containers on the node, one that asks for its GPUs and one that does not, look at what they see, also after
    `systemctl daemon-reload`, and remove them. The one that asks runs `nvidia-smi -L` where the toolkit hands it in,
    and is to have libcuda and each MIG device. No image is fetched. deploys/smoke.py does that alone."""
    vector_add: ImageName | None = None
    """Image with tag of a pod that adds vectors on one GPU, such as
    `nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0`. Where `kubernetes.enabled`, one is started on each node at
    the end of a run, must end with `PASSED`, and is removed. Not given: none is started."""
    vector_add_pods: int = Field(1, ge=1, le=64)
    """How many of these pods are started at once on each node, to prove that sharing shares. A node that promises fewer
    parts of GPUs is refused. The run tells which of them were on one GPU, and whether nvidia-smi had their processes at
    the same time; NVIDIA's plugin spreads them over the GPUs, so that it takes more pods than there are GPUs."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be asked for together."""
        if self.vector_add_pods > 1 and self.vector_add is None:
            yield "vector_add_pods", "says nothing without verify.vector_add, the pods' image; give it, or leave it out"


class DisruptionSettings(Component):
    """How much a run may disturb a node. What needs more than is allowed is not done but reported as pending; a node
    without workloads (its first provisioning) is exempt. Workloads are the containers of containerd and docker and the
    clients of MPS; podman's containers are none: no restart ends them, but the reset of a GPU that they use fails and
    is undone, and a boot ends them like all others."""

    allow: Literal["nothing", "restart", "reset", "reboot"] = "restart"
    """The gravest allowed: nothing < restart (a service) < reset (a GPU) < reboot (the node)."""
    max_parallel: int = Field(1, ge=1)
    """How many nodes may be disturbed at the same time."""
    retry: bool = False
    """Whether a change that failed on a node and was put back is tried again. For one run: `gpunode apply --retry`, or
    pyinfra's `--data gpunode_retry=1`."""
    reboot_timeout: int = Field(900, ge=10, le=7200)
    """Seconds within which a rebooted node must answer from its new boot, or it failed."""


class EngineSettings(Component):
    """Where a machine is, for whoever reads or changes many at once by `--engine dask://…` (docs/scale.md)."""

    site: SiteName | None = None
    """The site whose workers reach this machine: those that were started with `--resources site-NAME=1`. Not given:
    those that were started without a site."""
