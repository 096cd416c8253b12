"""Settings of the verdict at the end of a run."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from gpunode.settings.component import Component


class VerifySettings(Component):
    """Say what the verdict looks at beside the node's own state."""

    summary: ClassVar[str] = "The verdict at the end of a run."

    smoke: bool = Field(
        False,
        description=(
            "Start containers on the node, one that asks for its GPUs and one that does not, look at what they "
            "see, also after `systemctl daemon-reload`, and remove them. No image is fetched. deploys/smoke.py does "
            "that alone."
        ),
    )
