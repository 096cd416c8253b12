"""Settings of Multi-Instance GPU."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from gpunode.settings.component import Component, matching

MigConfigName = Annotated[
    str,
    AfterValidator(matching(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", "a configuration's name such as 'all-1g.10gb'")),
]


class MigSettings(Component):
    """Say which MIG layout a node's GPUs shall have."""

    summary: ClassVar[str] = (
        "Multi-Instance GPU. So far the driver is judged against what MIG needs; no instance is created."
    )

    config: MigConfigName | None = Field(
        None, description="Name of a MIG configuration; not given: MIG is no concern of gpunode's."
    )
