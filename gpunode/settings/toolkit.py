"""Settings of the NVIDIA container toolkit."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gpunode.settings.component import Component, ToolkitVersion


class ToolkitSettings(Component):
    """Say which NVIDIA container toolkit a node shall have."""

    summary: ClassVar[str] = "The NVIDIA container toolkit: nvidia-container-runtime, nvidia-ctk, libnvidia-container."

    enabled: bool = Field(True, description="false: the container toolkit is not installed.")
    version: ToolkitVersion | None = Field(
        None, description="Exact upstream version, such as `1.17.8`; not given: the repository's newest."
    )
    channel: Literal["stable", "experimental"] = Field(
        "stable", description="Channel of NVIDIA's repository; release candidates are in `experimental` only."
    )

    def contradictions(self) -> list[tuple[str, str]]:
        """Return a release candidate that the stable channel never carries."""
        if self.version and "-rc" in self.version and self.channel == "stable":
            return [
                ("version", "is a release candidate, which toolkit.channel 'stable' does not carry; use 'experimental'")
            ]
        return []
