"""Settings of how much a run may disturb a node that has workloads."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gpunode.settings.component import Component


class DisruptionSettings(Component):
    """Say how much a run may disturb, and how many nodes at once."""

    summary: ClassVar[str] = (
        "How much a run may disturb a node. What needs more than is allowed is not done but reported as pending; "
        "a node without workloads (its first provisioning) is exempt. Workloads are the containers of containerd and "
        "docker and the clients of MPS; podman's containers are none: no restart ends them, but the reset of a GPU "
        "that they use fails and is undone, and a boot ends them like all others."
    )

    allow: Literal["nothing", "restart", "reset", "reboot"] = Field(
        "restart", description="The gravest allowed: nothing < restart (a service) < reset (a GPU) < reboot (the node)."
    )
    max_parallel: int = Field(1, ge=1, description="How many nodes may be disturbed at the same time.")
    reboot_timeout: int = Field(
        900,
        ge=10,
        le=7200,
        description="Seconds within which a rebooted node must answer from its new boot, or it failed.",
    )
