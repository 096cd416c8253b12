"""Settings of the drain that goes round a disruptive step of a node in a Kubernetes cluster."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gpunode.settings.component import Component


class DrainSettings(Component):
    """Say how a node is emptied before it is disturbed."""

    summary: ClassVar[str] = (
        "How a node of a cluster is emptied before a step that its pods would feel (docs/how-to/drain.md)."
    )

    enabled: bool = Field(
        True, description="false: the cluster is not told, and pods feel what `disruption.allow` lets happen."
    )
    timeout: int = Field(
        600, ge=5, le=86400,
        description="Seconds within which the node must be empty; then it is *drain blocked*, and left as it is.",
    )  # fmt: skip
    grace: int | None = Field(
        None, ge=0, le=86400,
        description="Seconds that each pod has to end in; not given: what the pod itself says.",
    )  # fmt: skip
    delete_emptydir_data: bool = Field(
        False, description="true: pods with emptyDir volumes are evicted, too, and what is in these is lost."
    )
    force: bool = Field(
        False, description="true: pods that no controller makes anew elsewhere are evicted, too, and are gone for good."
    )
    ready_timeout: int = Field(
        300, ge=5, le=7200,
        description="Seconds within which the node must be Ready in the cluster before it takes pods again.",
    )  # fmt: skip

    def contradictions(self) -> list[tuple[str, str]]:
        """Refuse a grace that no drain could await, and pods given up where none is asked to leave."""
        found = []
        if self.grace is not None and self.grace >= self.timeout:
            found.append(
                ("grace", f"is no shorter than timeout, {self.timeout} s: the drain would end before the pods")
            )
        if not self.enabled:
            found += [
                (name, "has no meaning with enabled = False: no pod is evicted")
                for name in ("force", "delete_emptydir_data")
                if getattr(self, name)
            ]
        return found
